"""What can be wrong with stored rows."""

from typing import Final

import pyarrow as pa

ARROW_FAULTS: Final = (pa.ArrowException, OSError, ValueError, KeyError)
"""What pyarrow raises on damaged bytes; its own exceptions derive from several built-in ones."""


class StoreFault(Exception):
    """Stored rows could not be read. Never to be answered with an empty page."""


class StoreUnreachable(StoreFault):
    """Stored rows cannot be fetched now: no answer, or no room for them. Try again."""
