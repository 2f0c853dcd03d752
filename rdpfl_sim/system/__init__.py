"""Access to the machine: files that may come from elsewhere, memory limits, Ray."""
