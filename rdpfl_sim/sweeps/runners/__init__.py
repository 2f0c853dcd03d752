"""Where the runs of a sweep are executed: in processes of this machine, or on a Ray cluster."""
