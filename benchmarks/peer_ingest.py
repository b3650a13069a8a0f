"""What the peer takes in: install events, with the checks of form that our endpoint makes.

One struct for each event, so that msgspec checks names, types and lengths in one pass. Nothing here
is of our own modules, which are measured beside it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal

import asyncpg  # type: ignore[import-untyped]
import msgspec

ITEMS_MAX: Final = 10_000
BODY_BYTES_MAX: Final = 5 * 1024 * 1024
AHEAD_MAX: Final = timedelta(seconds=60)
ENVELOPE_BYTES_MAX: Final = 4_096
REASON_CHARS_MAX: Final = 256
ERROR_CHARS_MAX: Final = 300
COLUMNS: Final = (
    *("tenant", "created_at", "received_at", "event", "decision", "verdict_source"),
    *("actor_source", "actor", "package_name", "version", "ecosystem", "decision_reason"),
    *("request_id", "source_ip", "payload"),
)
INSERT: Final = (
    f"INSERT INTO rows ({', '.join(COLUMNS)})"
    f" VALUES ({', '.join(f'${number}' for number, _ in enumerate(COLUMNS, 1))})"
)

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Version = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What every object of the body is."""


class _Nothing(_Strict, frozen=True):
    """The envelope of an event that says no more."""


class _Registry(_Strict, frozen=True):
    registry: str


class _Rule(_Strict, frozen=True):
    rule_id: str
    source: Literal["osv", "operator"]


class _Cooldown(_Strict, frozen=True):
    published_at: str
    min_age_days: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

    def __post_init__(self) -> None:
        """Raise ValidationError unless `published_at` is an RFC 3339 instant."""
        msgspec.convert(self.published_at, Instant)


class _Install(_Strict, frozen=True, kw_only=True, tag_field="event"):
    """What all events have. The event determines the decision."""

    decides: ClassVar[str]
    package_name: Text = msgspec.field(name="packageName")
    version: Version | None = None
    ecosystem: Literal["npm", "pypi"] | None = None
    created_at: Instant | None = None


class _Allowing(_Install, frozen=True, kw_only=True):
    decides = "ALLOWED"
    decision: Literal["ALLOWED"] | None = None


class _Blocking(_Install, frozen=True, kw_only=True):
    decides = "BLOCKED"
    decision: Literal["BLOCKED"] | None = None


class _FirstParty(_Allowing, frozen=True, kw_only=True, tag="oss_first_party"):
    envelope: _Registry


class _InstallAllowed(_Allowing, frozen=True, kw_only=True, tag="install_allowed"):
    envelope: _Nothing = _Nothing()


class _BlocklistHit(_Blocking, frozen=True, kw_only=True, tag="blocklist_hit"):
    envelope: _Rule


class _CooldownActive(_Blocking, frozen=True, kw_only=True, tag="cooldown_active"):
    envelope: _Cooldown


Item = _FirstParty | _InstallAllowed | _BlocklistHit | _CooldownActive
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Sender:
    """What all rows of a request share."""

    request_id: str
    source_ip: str


class Refused(ValueError):
    """An item that must not become a row."""


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise Refused("duplicate key")


_array: Final = msgspec.json.Decoder(list[msgspec.Raw])
_item: Final = msgspec.json.Decoder(Item)
_keys: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_int=str, parse_float=str)


def read_rows(body: bytes, sender: Sender) -> tuple[list[Row], list[dict[str, Any]]]:
    """The rows of the JSON array `body`, and what is wrong with its other items.

    Raises msgspec.DecodeError for another body, ValueError for one with too many items.
    """
    items = _array.decode(body)
    if len(items) > ITEMS_MAX:
        raise ValueError("too many items")
    now = datetime.now(UTC)
    rows: list[Row] = []
    rejected = []
    for index, raw in enumerate(items):
        try:
            rows.append(_row(bytes(raw), sender, now))
        except (ValueError, RecursionError) as error:  # DecodeError and UnicodeError among them
            rejected.append({"index": index, "error": str(error)[:ERROR_CHARS_MAX]})
    return rows, rejected


def _row(raw: bytes, sender: Sender, now: datetime) -> Row:
    item = _item.decode(raw)
    _keys.decode(raw.decode())
    for text in (item.package_name, item.version):
        if text is not None and (text != text.strip() or not text.isprintable()):
            raise Refused("packageName and version must be printable, without white space around")
    if item.created_at is not None and item.created_at > now + AHEAD_MAX:
        raise Refused("created_at is too far ahead")
    payload = msgspec.json.encode(item.envelope)
    if len(payload) > ENVELOPE_BYTES_MAX:
        raise Refused("envelope is too long")
    envelope = payload.decode()
    return (
        *(0, item.created_at or now, now, item.__struct_config__.tag, item.decides, "proxy"),
        *("admin_token", "system:admin-token", item.package_name, item.version, item.ecosystem),
        *(envelope[:REASON_CHARS_MAX], sender.request_id, sender.source_ip, envelope),
    )


async def store(pool: asyncpg.Pool, rows: Sequence[Row]) -> None:
    """Store `rows` in one synced transaction: one by an INSERT, more by a COPY."""
    if len(rows) == 1:
        await pool.execute(INSERT, *rows[0])
    elif rows:
        await pool.copy_records_to_table("rows", records=rows, columns=COLUMNS)
