"""Benchmarks: one script per performance claim; each prints its figures beside estimates."""
