"""Run a scenario: build the experiment, simulate it, write checkpoints and the summary, and resume runs."""
