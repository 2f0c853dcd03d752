"""The tabs of the report of a run, one per file."""
