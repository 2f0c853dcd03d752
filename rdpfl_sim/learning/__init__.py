"""Data sets, partitions, models, local training and evaluation."""
