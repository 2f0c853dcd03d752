"""Components: their registries, options and plug-ins. Knows no component."""
