"""One file a command of the command line: its help, its arguments, and what it does."""
