"""Statements on packages that the install proxy admitted."""
