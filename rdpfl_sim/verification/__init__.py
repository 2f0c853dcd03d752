"""Check the records of a run: every invariant is verified from the files only."""
