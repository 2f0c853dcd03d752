"""Contents of Byzantine messages."""
