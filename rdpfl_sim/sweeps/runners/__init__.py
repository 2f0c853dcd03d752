"""Where the runs of a sweep are executed: in processes on this machine, or on a Ray cluster."""
