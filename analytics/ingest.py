"""What others may write into the audit log: install rows, each checked on its own.

The sender says what was installed and what was decided. Everything else of a row - who sent it,
when it arrived, through which request - is the service's to say.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from analytics.events import ENVELOPES, Envelope, parse_envelope
from analytics.instants import parse_instant
from analytics.rows import AuditRow, Stamp, audit_row

AHEAD_MAX: Final = timedelta(seconds=60)
"""How far a sender's clock may be ahead of ours."""

PACKAGE_NAME_MAX: Final = 512
VERSION_MAX: Final = 256

INGESTIBLE: Final = tuple(
    sorted(event for event, envelope in ENVELOPES.items() if envelope.ingestible)
)


class IngestItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One install, as its sender tells it."""

    event: str
    package_name: Annotated[str, msgspec.Meta(min_length=1, max_length=PACKAGE_NAME_MAX)] = (
        msgspec.field(name="packageName")
    )
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=VERSION_MAX)] | None = None
    created_at: str | None = None
    decision: str | None = None
    envelope: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Window:
    """The instants a row may have: not before the retention floor, not after `now` by much."""

    now: datetime
    floor: datetime | None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the item at `index` (from 0) was not taken."""

    index: int
    error: str


class ItemRefused(ValueError):
    """An item that must not become a row; the text names the field."""


NOT_JSON: Final = "item must be JSON in UTF-8, without lone surrogates or deep nesting"

_EVENTS: Final = {event.value: event for event in INGESTIBLE}
_decoder: Final = msgspec.json.Decoder(IngestItem)


def read_items(
    items: Iterable[bytes | msgspec.Raw], stamp: Stamp, window: Window
) -> tuple[list[AuditRow], list[Rejection]]:
    """The rows that `items` (JSON) make, and why the others make none.

    `stamp` says who sends them; `window.now` is when they are received, and when what has no
    `created_at` happened.
    """
    rows: list[AuditRow] = []
    rejected: list[Rejection] = []
    for index, item in enumerate(items):
        try:
            rows.append(_row(_decoder.decode(item), stamp, window))
        except ItemRefused as error:
            rejected.append(Rejection(index, str(error)))
        except msgspec.ValidationError as error:
            rejected.append(Rejection(index, _readable(error, within="")))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rejected.append(Rejection(index, NOT_JSON))
    return rows, rejected


def _row(item: IngestItem, stamp: Stamp, window: Window) -> AuditRow:
    envelope = _envelope(item)
    if item.decision not in {None, envelope.decision}:
        raise ItemRefused(f"decision of {item.event} must be {envelope.decision}")
    _check_text("packageName", item.package_name)
    _check_text("version", item.version)
    return audit_row(
        envelope,
        stamp,
        _created_at(item.created_at, window),
        received_at=window.now,
        package_name=item.package_name,
        version=item.version,
    )


def _envelope(item: IngestItem) -> Envelope:
    event = _EVENTS.get(item.event)
    if event is None:
        raise ItemRefused(f"event must be one of {', '.join(INGESTIBLE)}")
    try:
        return parse_envelope(event, item.envelope)
    except msgspec.ValidationError as error:
        raise ItemRefused(_readable(error, within="envelope")) from error


def _created_at(text: str | None, window: Window) -> datetime:
    if text is None:
        return window.now
    try:
        created_at = parse_instant(text)
    except ValueError as error:
        raise ItemRefused("created_at must be an RFC 3339 instant") from error
    if created_at > window.now + AHEAD_MAX:
        raise ItemRefused(f"created_at is more than {AHEAD_MAX.seconds} seconds ahead")
    if window.floor is not None and created_at < window.floor:
        raise ItemRefused("created_at is before the retention floor")
    return created_at


def _check_text(field: str, text: str | None) -> None:
    if text is not None and not text.isprintable():
        raise ItemRefused(f"{field} must have printable characters only")


def _readable(error: msgspec.ValidationError, within: str) -> str:
    """Msgspec's text with the field's name in front: `envelope.rule_id: Expected …`."""
    reason, _, place = str(error).partition(" - at `$")
    field = f"{within}{place.rstrip('`')}".lstrip(".")
    return f"{field}: {reason}" if field else reason
