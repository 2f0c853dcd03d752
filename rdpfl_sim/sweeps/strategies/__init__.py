"""Which runs a command executes next, and what their results say: the cases of a sweep, or a bisection."""
