"""Files of rows with a history of their own: parsed, checked and grouped into segments.

Memory stays bounded, and no segment is visible before the import commits.
"""
