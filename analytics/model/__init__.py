"""The model of audit rows: schema, events, instants, retention, filters and cursors.

Only values and rules, without I/O.
"""
