"""What can be wrong with stored rows."""


class StoreFault(Exception):
    """Stored rows could not be read. Never to be answered with an empty page."""
