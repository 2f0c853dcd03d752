"""Faults: when they occur and what they change."""
