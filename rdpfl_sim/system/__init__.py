"""Access to the machine: safe access to files, memory limits, Ray."""
