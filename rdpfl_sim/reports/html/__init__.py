"""The report of a run or a sweep: one self-contained HTML file."""
