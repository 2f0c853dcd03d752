"""Scenarios: TOML files, their sections, checks, overrides and templates."""
