"""Executors compute the jobs of clients. Simulated time never depends on the executor."""
