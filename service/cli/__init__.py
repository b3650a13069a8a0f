"""The command line: what an operator does to the platform."""
