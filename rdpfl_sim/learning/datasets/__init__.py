"""Data sets: embedded ones, downloaded ones, and files."""

from rdpfl_sim.learning.datasets import dataset, images

__all__ = ["dataset", "images"]
