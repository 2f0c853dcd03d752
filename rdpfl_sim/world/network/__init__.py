"""Links, transport, bandwidth and topology."""
