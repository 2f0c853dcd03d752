"""Access to the machine: files, memory limits, Ray."""
