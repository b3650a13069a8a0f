"""Checks what others may write into the audit log: install rows, each on its own.

The sender states what was installed and decided. The service itself states the rest of a row: who
sent it, when it arrived, and in which request.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from analytics.model.decision_reason import compact
from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import ENVELOPES, parse_envelope
from analytics.model.events import Decision, Envelope, Event
from analytics.model.row_validation import (
    AHEAD_MAX,
    ERROR_CHARS_MAX,
    AcceptedInterval,
    RowRefused,
    check_decision,
    check_ecosystem,
    check_package_text,
)
from analytics.model.rows import PACKAGE_NAME_MAX, VERSION_MAX, AuditContext, AuditRow, audit_row
from analytics.model.strict_json import DuplicateKey, check_keys
from analytics.model.validation_errors import describe

INGESTIBLE: Final = tuple(
    sorted(event for event, envelope in ENVELOPES.items() if envelope.ingestible)
)

ENVELOPE_BYTES_MAX: Final = 4_096
"""As compact JSON. The journal is bounded by rows, and every query of its day decodes them: rows as
long as a request, which pack to next to nothing, would use up the memory of all queries."""


def _documented(text: str, **schema: Any) -> msgspec.Meta:  # noqa: ANN401 - any JSON schema
    """What the API's document says of a member; the member's own check refuses other values."""
    return msgspec.Meta(description=text, extra_json_schema=schema)


def _envelope_members() -> str:
    """Which members the envelope of each event has, in words."""
    members = {event: ENVELOPES[event].__struct_fields__ for event in INGESTIBLE}
    texts = [
        f"`{event}`: {', '.join(map('`{}`'.format, names))}"
        for event, names in members.items()
        if names
    ]
    return f"What the event says beyond the other members. {'; '.join(texts)}; otherwise empty."


class IngestItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One install, as its sender describes it."""

    event: Annotated[str, _documented("What was decided.", enum=list(INGESTIBLE))]
    package_name: Annotated[str, msgspec.Meta(min_length=1, max_length=PACKAGE_NAME_MAX)] = (
        msgspec.field(name="packageName")
    )
    version: (
        Annotated[str, msgspec.Meta(min_length=1, max_length=VERSION_MAX)] | UnsetType | None
    ) = UNSET
    ecosystem: (
        Annotated[str, _documented("The package's.", enum=list(Ecosystem))] | UnsetType | None
    ) = UNSET
    created_at: (
        Annotated[
            str,
            _documented(
                "An RFC 3339 instant within the retention, at most"
                f" {AHEAD_MAX.seconds} seconds ahead; default: when it arrives.",
                examples=["2026-01-31T08:00:00Z"],
            ),
        ]
        | UnsetType
        | None
    ) = UNSET
    decision: (
        Annotated[
            str,
            _documented("That of the event, which determines it.", enum=list(Decision)),
        ]
        | UnsetType
        | None
    ) = UNSET
    envelope: Annotated[dict[str, Any], _documented(_envelope_members())] | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class ItemRejection:
    """Why the item at `index` (from 0) was not accepted."""

    index: int
    error: str


NOT_JSON: Final = "item must be JSON in UTF-8, without lone surrogates or deep nesting"

_EVENTS: Final[dict[str, Event]] = {event: event for event in INGESTIBLE}
_decoder: Final = msgspec.json.Decoder(IngestItem)


def _envelope_marks(envelope: type[Envelope]) -> int:
    """The quotation marks of an `envelope` in an item: around its own key, its keys and texts."""
    types = [field.type for field in msgspec.structs.fields(envelope) if field.required]
    texts = [kind for kind in types if kind is str or get_origin(kind) is Literal]
    return 2 + 2 * len(types) + 2 * len(texts)


_ENVELOPE_MARKS: Final[dict[str, int]] = {
    event: _envelope_marks(ENVELOPES[event]) for event in INGESTIBLE
}


def read_items(
    items: Iterable[bytes | msgspec.Raw], audit_context: AuditContext, window: AcceptedInterval
) -> tuple[list[AuditRow], list[ItemRejection]]:
    """The rows made from `items` (JSON), and why other items were rejected.

    `audit_context` names the sender. `window.now` is when they are received; an item without
    `created_at` happened then.
    """
    rows: list[AuditRow] = []
    rejected: list[ItemRejection] = []
    for index, item in enumerate(items):
        try:
            rows.append(_row(bytes(item), audit_context, window))
        except (RowRefused, DuplicateKey) as error:
            rejected.append(_rejected(index, str(error)))
        except msgspec.ValidationError as error:
            rejected.append(_rejected(index, describe(error)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rejected.append(ItemRejection(index, NOT_JSON))
    return rows, rejected


def _rejected(index: int, error: str) -> ItemRejection:
    return ItemRejection(index, error[:ERROR_CHARS_MAX])


def _row(raw: bytes, audit_context: AuditContext, window: AcceptedInterval) -> AuditRow:
    item = _decoder.decode(raw)
    if raw.count(b'"') != _marks(item):
        check_keys(raw)
    envelope = _envelope(item)
    # Null means the same as no value.
    version = None if item.version is UNSET else item.version
    ecosystem = None if item.ecosystem is UNSET else item.ecosystem
    created_at = None if item.created_at is UNSET else item.created_at
    decision = None if item.decision is UNSET else item.decision
    check_decision(item.event, decision, envelope.decision)
    check_package_text("packageName", item.package_name)
    check_package_text("version", version)
    check_ecosystem(ecosystem)
    row = audit_row(
        envelope,
        audit_context,
        window.now if created_at is None else window.instant(created_at),
        received_at=window.now,
        subject=audit_context.ci.sub if audit_context.ci else None,
        package_name=item.package_name,
        version=version,
        ecosystem=ecosystem,
    )
    _check_size(envelope, row.payload)
    return row


def _marks(item: IngestItem) -> int:
    """How many quotation marks spell a good `item`: two around each of its keys and texts.

    A key that decoding dropped, because it came again, leaves more of them in the bytes. So do
    escaped marks, which is why more of them are a reason to look, and no fault.
    """
    marks = 8
    for text in (item.version, item.ecosystem, item.created_at, item.decision):
        if text is not UNSET:
            marks += 2 if text is None else 4
    if item.envelope is not UNSET:
        marks += _ENVELOPE_MARKS.get(item.event, 0) if item.envelope else 2
    return marks


def _check_size(envelope: Envelope, payload: str) -> None:
    """Raise RowRefused for an envelope that is too long; `payload` holds it, and maybe more."""
    # A character takes at most four bytes: its length alone clears nearly every payload.
    is_short = len(payload) * 4 <= ENVELOPE_BYTES_MAX
    if not is_short and len(compact(envelope).encode()) > ENVELOPE_BYTES_MAX:
        raise RowRefused(f"envelope must take at most {ENVELOPE_BYTES_MAX} bytes")


def _envelope(item: IngestItem) -> Envelope:
    event = _EVENTS.get(item.event)
    if event is None:
        raise RowRefused(f"event must be one of {', '.join(INGESTIBLE)}")
    try:
        return parse_envelope(event, {} if item.envelope is UNSET else item.envelope)
    except msgspec.ValidationError as error:
        raise RowRefused(describe(error, "envelope")) from error
