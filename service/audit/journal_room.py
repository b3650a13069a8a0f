"""How many rows of an organisation may wait in the journal to be sealed."""

from typing import Final

from service.core.errors import JournalFull
from service.store.journal import JournalSize

BATCH_ROWS: Final = 16
"""The minimum average of rows per batch in a full journal."""

BATCHES_MIN: Final = 16_384
"""Batches that may wait regardless of the row limit: more than one request adds beyond the number
that makes days due. Otherwise a journal of single rows could be full before it is sealed."""

ROW_BYTES: Final = 512
"""The maximum average memory of a row in a full journal. Most rows take half of it, but a row can
have an envelope of kilobytes, and a query decodes all of them."""

BYTES_MIN: Final = 128 * 2**20
"""Bytes that may wait regardless of the row limit, with the same margin as BATCHES_MIN."""


def check_journal_room(waiting: JournalSize, added: JournalSize, rows_max: int) -> None:
    """Raise JournalFull if what is `added` does not fit beside what is `waiting`."""
    if (
        waiting.rows + added.rows > rows_max
        # Each batch is read and decoded separately, and rows of many days are many batches.
        or waiting.batches + added.batches > max(rows_max // BATCH_ROWS, BATCHES_MIN)
        or waiting.bytes + added.bytes > max(rows_max * ROW_BYTES, BYTES_MIN)
    ):
        raise JournalFull
