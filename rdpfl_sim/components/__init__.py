"""Components: their registries, options and plug-ins. Contains no component."""
