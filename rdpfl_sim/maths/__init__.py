"""Pure functions on tensors. They return new tensors and never modify their arguments."""
