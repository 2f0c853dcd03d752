"""Executors, which train models. Simulated time never depends on the executor."""
