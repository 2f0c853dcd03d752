"""Progress, tables, figures and HTML pages for runs and sweeps, created from their records."""
