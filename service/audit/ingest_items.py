"""Parses the body of an ingest request into items, validates them, encodes them for the journal.

Must not import the web framework: a worker process does this for large bodies.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from analytics.model.ingest_validation import ItemRejection, read_items
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditContext, AuditRow
from analytics.storage.journal_batches import EncodedBatch, encode_days
from service.audit.refusals import NOT_INGEST_TYPE, NOT_ITEMS
from service.core.errors import BodyTooLarge

ITEMS_MAX: Final = 10_000
TOO_MANY_ITEMS: Final = BodyTooLarge.of("at most {limit} rows in one request", limit=ITEMS_MAX)
NDJSON_TYPE: Final = "application/x-ndjson"
SHARED_ROWS: Final = 128
"""Up to this many rows of a request share a batch with rows committed together with them: reading
a batch of a few rows takes as long as one of hundreds."""

_JSON_TYPE: Final = "application/json"
_LINE: Final = re.compile(rb"\S[^\n]*")
"""From the first character that is not white space."""
_COMMAS_OF_AN_ITEM: Final = 5
_items_decoder: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class IngestBody:
    """The decoded bytes of a request body, and its declared type."""

    content: bytes
    mimetype: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """The valid items of a request, as rows or as batches, and the rejected ones."""

    rows: Sequence[AuditRow]
    batches: Sequence[EncodedBatch]
    rejected: Sequence[ItemRejection]

    @property
    def accepted(self) -> int:
        """The number of valid items."""
        return len(self.rows) + sum(batch.rows for batch in self.batches)

    @property
    def bytes(self) -> int:
        """The memory of the batches; single rows count only once they are written."""
        return sum(batch.size for batch in self.batches)


def prepare_body(
    body: IngestBody, audit_context: AuditContext, interval: AcceptedInterval
) -> Prepared:
    """The rows of `body`. Raises NOT_INGEST_TYPE, NOT_ITEMS, TOO_MANY_ITEMS."""
    items = split_items(body, ITEMS_MAX)
    rows, rejected = read_items(items, audit_context, interval)
    if len(rows) <= SHARED_ROWS:
        return Prepared(rows, [], rejected)
    return Prepared([], encode_days(rows), rejected)


def split_items(body: IngestBody, items_max: int) -> list[bytes | msgspec.Raw]:
    """The items of a JSON array or of newline-delimited JSON, not decoded yet.

    Blank lines are skipped. Raises NOT_INGEST_TYPE, NOT_ITEMS, TOO_MANY_ITEMS.
    """
    if body.mimetype == NDJSON_TYPE:
        # One more than allowed, to detect too many: a body can have millions of lines.
        items = [line[0] for line in islice(_LINE.finditer(body.content), items_max + 1)]
    elif body.mimetype == _JSON_TYPE:
        items = _split_array(body.content, items_max)
    else:
        raise NOT_INGEST_TYPE
    if len(items) > items_max:
        raise TOO_MANY_ITEMS(limit=items_max)
    return items


def _split_array(content: bytes, items_max: int) -> list[bytes | msgspec.Raw]:
    try:
        # Counting millions of tiny items takes a tenth of the time of separating them.
        has_many = content.count(b",") > items_max * _COMMAS_OF_AN_ITEM
        if has_many and len(msgspec.json.decode(content, type=list)) > items_max:
            raise TOO_MANY_ITEMS(limit=items_max)
        return list(_items_decoder.decode(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NOT_ITEMS from error
