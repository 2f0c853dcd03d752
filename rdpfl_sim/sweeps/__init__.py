"""Many runs: what to run, where to run it, and what came out of it."""
