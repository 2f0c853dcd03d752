"""Whether a run's records can be true: every invariant is checked again, from the files alone."""
