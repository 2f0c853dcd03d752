"""The command line: one file per command, with its help text, its arguments and its action."""
