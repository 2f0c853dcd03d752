"""Progress, tables, figures and pages of runs and sweeps, made from their records."""
