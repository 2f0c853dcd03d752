"""Data sets: embedded ones, downloaded ones, and files."""
