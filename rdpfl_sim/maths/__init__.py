"""Pure functions on tensors: they return new tensors and never change one that they were given."""
