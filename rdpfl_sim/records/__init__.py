"""What a run leaves behind: events, metrics, summary, each in its file of the run folder."""
