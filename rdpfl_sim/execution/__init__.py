"""Where training runs. Simulated time never depends on it."""
