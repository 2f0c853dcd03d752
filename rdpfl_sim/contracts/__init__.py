"""Contracts for the arguments and results of components. Plug-ins are checked against them."""
