"""What is known of segments without reading their rows: bounds, counts and values.

The planner prunes and estimates with it; a wrong estimate costs time, never a row.
"""
