"""Scenarios: sections, checks, overrides and templates."""
