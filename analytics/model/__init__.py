"""What an audit row is: schema, events, instants, retention, filters and cursors.

Pure values and rules; nothing here opens a file.
"""
