"""Compare runs, paired by seed: `rdpfl-sim compare`."""
