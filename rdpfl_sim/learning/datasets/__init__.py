"""Data sets: embedded ones, downloaded ones, and files."""

from rdpfl_sim.learning.datasets import embedded, images

__all__ = ["embedded", "images"]
