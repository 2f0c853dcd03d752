"""Registries, options and plug-in loading for components. Contains no component."""
