"""The report of a run or a sweep: one HTML file that needs nothing else, made from the records."""
