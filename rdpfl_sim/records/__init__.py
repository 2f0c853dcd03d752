"""Files in a run folder: events, metrics and summary."""
