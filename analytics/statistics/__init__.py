"""What is known about segments without reading their rows: bounds, counts and values.

The planner uses it to prune and estimate. A wrong estimate costs time, but never a row.
"""
