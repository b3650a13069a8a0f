"""Answers over one snapshot: pages, counts, streams, histograms and top values.

DuckDB and Arrow scans give the same rows; which one runs is a matter of cost.
"""
