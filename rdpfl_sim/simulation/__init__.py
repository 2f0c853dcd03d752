"""Runs: building an experiment, simulating it, checkpoints, resuming, summaries."""
