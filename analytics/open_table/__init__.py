"""The lake as an open table: Iceberg and Delta metadata over the segments, which stay as they are.

The formats' libraries are optional (the extra `lake`); only `iceberg` and `delta` import them.
"""
