"""The simulated world: clients, links, messages and adversaries on a SimPy kernel."""
