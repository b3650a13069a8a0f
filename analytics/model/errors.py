"""Faults of stored rows."""

from typing import Final

import pyarrow as pa

ARROW_FAULTS: Final = (pa.ArrowException, OSError, ValueError, KeyError)
"""What pyarrow raises for damaged bytes; its own exceptions derive from several built-in ones."""


class StoreFault(Exception):
    """Stored rows could not be read. An empty page must never be the answer to this."""


class StoreUnreachable(StoreFault):
    """Stored rows cannot be fetched now, for lack of an answer or of space. Try again later."""
