"""Many runs: plan them, run them, and compare their results."""
