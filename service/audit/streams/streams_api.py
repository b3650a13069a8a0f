"""The endpoints of an organisation's streams: where its rows are sent."""

import base64
import secrets
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import UNSET, Meta
from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.filters import parse_query
from analytics.model.instants import format_us, optional_us
from analytics.model.log_envelopes import StreamChanged
from analytics.model.schema import audit_id, parse_audit_id
from analytics.storage.snapshot import Snapshot
from service.access.roles import Capability
from service.audit.services import AuditServices
from service.audit.streams.sending import Delivered
from service.audit.streams.sinks import SCHEMES, WEBHOOK_PREFIX, Line, SinkKind
from service.audit.streams.stored import send_lines
from service.core.errors import Conflict, Invalid, NotFound
from service.core.ids import new_id
from service.core.secrets import seal
from service.core.text_rules import NAME_MAX, check_name
from service.store.journal import last_seq
from service.store.tables import Stream
from service.store.transaction import within
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import (
    Answer,
    NonNegative,
    Omittable,
    Parsed,
    Request,
    SecretAnswer,
    TimestampUs,
)

STREAMS_MAX: Final = 20
URL_MAX: Final = 2_000
STREAM_NOT_FOUND: Final = NotFound.of("Stream not found for this org")
STREAM_EXISTS: Final = Conflict.of("a stream of this name exists", field="name")
TOO_MANY_STREAMS: Final = Conflict.of(f"limit of {STREAMS_MAX} streams reached: delete one first")
NO_STREAM_URL: Final = Invalid.of(
    "url must be {value}, without a user, password, query or fragment",
    field="url",
    value="https:// and a host",
)
NO_SECRET: Final = Invalid.of("secret must be {value}", field="secret", value="a token")
NO_ROW: Final = Invalid.of("after must be start, now or the id of a row", field="after")
_WRITE: Final = Capability.STREAM_WRITE
_URLS: Final = {"syslog": "syslog+tls://HOST:PORT"}
_SECRETS: Final = {"splunk_hec": "the collector's token", "s3": "KEY_ID:SECRET_KEY"}

resource = Resource("streams", "/streams", Tag.STREAMS, AuditServices)

After = Annotated[
    str, Meta(description="Which rows: those after this id, `start` for all, `now` for new ones.")
]
Secret = Annotated[
    str,
    Meta(
        max_length=4096,
        description="Of Splunk the token, of OTLP the value of `authorization`, of S3 the id and"
        " the secret of a key with a colon between. That of a webhook is made, and answered once.",
    ),
]


class NewStream(Request):
    """A stream to create."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    kind: SinkKind
    url: Annotated[str, Meta(max_length=URL_MAX)]
    format: Literal["wire", "ocsf"] = "wire"
    query: Annotated[str, Meta(description="Filters, as of a saved search; empty for all.")] = ""
    after: After = "now"
    secret: Secret = ""
    region: Annotated[str, Meta(pattern="^[a-z0-9-]{1,32}$", description="Of S3.")] = "us-east-1"


class StreamChange(Request):
    """What is changed of a stream; what is missing stays."""

    state: Omittable[Literal["active", "paused"]] = UNSET
    after: Omittable[After] = UNSET
    secret: Omittable[Secret] = UNSET


class StreamEntry(Answer):
    """A stream, and how far it is."""

    id: str
    name: str
    kind: str
    url: str
    format: str
    query: str
    state: Annotated[str, Meta(description="active, paused or suspended.")]
    cursor: Annotated[str, Meta(description="The id up to which rows are delivered.")]
    lag_rows: Annotated[NonNegative, Meta(description="About how many rows it is behind.")]
    lag_s: Annotated[NonNegative, Meta(description="How old the first row is that it lacks.")]
    parked: Annotated[NonNegative, Meta(description="How many rows the receiver refused.")]
    answer: Annotated[str | None, Meta(description="The receiver's last status and answer.")]
    answered_at: TimestampUs | None
    created_by: str
    created_at: TimestampUs


class CreatedStream(SecretAnswer, StreamEntry):
    """A stream with a new secret of a webhook, which is in this answer only; else it is null."""

    secret: str | None


class StreamList(Answer):
    """The organisation's streams, by name."""

    org: str
    streams: list[StreamEntry]


class DeletedStream(Answer):
    """The id of the stream that was deleted."""

    deleted: str


class StreamTest(Answer):
    """What the receiver answered to a record that only says it is a test."""

    accepted: bool
    answer: str


def parse_new_stream(given: dict[str, Any]) -> NewStream:
    """The stream in a request's body. Raises Invalid."""
    new = NewStream.parse(given)
    check_name(new.name)
    try:
        parts = urlsplit(new.url)
        is_plain = "@" not in parts.netloc and parts.port != 0 and not parts.query + parts.fragment
        is_text = new.url.isascii() and new.url.isprintable() and " " not in new.url
    except ValueError:
        is_plain = is_text = False
    if not (is_plain and is_text and parts.hostname and parts.scheme in SCHEMES[new.kind]):
        raise NO_STREAM_URL(value=_URLS.get(new.kind, "https:// and a host"))
    try:
        parameters = parse_qs(new.query, keep_blank_values=True, strict_parsing=bool(new.query))
        parse_query(parameters, has_order=False)
    except ValueError as error:  # InvalidQuery is one
        raise Invalid(
            f"query must be filters such as package=left-pad: {error}", field="query"
        ) from error
    return new


@resource.get("list_streams", needs=Capability.STREAM_READ, returns=StreamList)
async def list_(call: Call[AuditServices]) -> StreamList:
    """List the organisation's streams, by name, and how far each is."""
    async with call.read() as session:
        streams = [*await session.scalars(select(Stream).where(_mine(call)).order_by(Stream.name))]
    snapshot = await call.services.store.snapshot(call.org.id)
    entries = [StreamEntry(**_facts(each, call.services.clock(), snapshot)) for each in streams]
    return StreamList(org=call.org.slug, streams=entries)


@resource.post(
    "create_stream",
    needs=_WRITE,
    body=Parsed(NewStream, parse_new_stream),
    example={"name": "SIEM", "kind": "webhook", "url": "https://siem.example/rows"},
    returns=CreatedStream,
    status=201,
    is_sensitive=True,
    refuses=[NO_STREAM_URL, NO_SECRET, NO_ROW, STREAM_EXISTS, TOO_MANY_STREAMS],
)
async def create(call: WriteCall[AuditServices], new: NewStream) -> CreatedStream:
    """Send the organisation's rows to a receiver from now on, at least once and in order."""
    names = [*await call.session.scalars(select(Stream.name).where(_mine(call)))]
    if new.name in names:
        raise STREAM_EXISTS
    if len(names) >= STREAMS_MAX:
        raise TOO_MANY_STREAMS
    stream_id = new_id("stream")
    secret = _new_secret(new.kind, new.secret)
    seq = await _seq_after(call, new.after)
    stream = Stream(
        id=stream_id,
        tenant_id=call.org.id,
        **{name: getattr(new, name) for name in ("name", "kind", "url", "format", "query")},
        region=new.region,
        secret=seal(call.services.settings.secret_key, stream_id, secret),
        state="active",
        revision=0,
        cursor=seq,
        reconciled_seq=seq,
        reconciled_at=call.work.now,
        parked=0,
        parked_since=[],
        created_by=call.by.actor,
        created_at=call.work.now,
    )
    call.session.add(stream)
    _record(call, stream, "created", new.url)
    return _created(call, stream, secret)


@resource.put(
    "change_stream",
    "/<stream_id>",
    needs=_WRITE,
    body=StreamChange,
    example={"state": "paused"},
    returns=CreatedStream,
    is_sensitive=True,
    refuses=[NO_SECRET, NO_ROW, STREAM_NOT_FOUND],
)
async def change(
    call: WriteCall[AuditServices], body: StreamChange, stream_id: str
) -> CreatedStream:
    """Pause or resume a stream, send rows again, or replace its secret.

    The former secret is used as well for a day.
    """
    stream = await _get(call.session, call, stream_id)
    secret = ""
    if body.state is not UNSET:
        stream.state, stream.denied_since = body.state, None
        _record(call, stream, body.state)
    if body.after is not UNSET:
        stream.cursor = stream.reconciled_seq = await _seq_after(call, body.after)
        stream.parked_since = []
        _record(call, stream, "moved", audit_id(stream.cursor))
    if body.secret is not UNSET:
        secret = _new_secret(stream.kind, body.secret)
        stream.former_secret, stream.rotated_at = stream.secret, call.work.now
        stream.secret = seal(call.services.settings.secret_key, stream.id, secret)
        _record(call, stream, "secret_replaced")
    stream.revision += 1
    return _created(call, stream, secret)


@resource.delete(
    "delete_stream",
    "/<stream_id>",
    needs=_WRITE,
    returns=DeletedStream,
    refuses=[STREAM_NOT_FOUND],
)
async def delete(call: WriteCall[AuditServices], stream_id: str) -> DeletedStream:
    """Send no more rows to a receiver."""
    stream = await _get(call.session, call, stream_id)
    await call.session.delete(stream)
    _record(call, stream, "deleted")
    return DeletedStream(deleted=stream_id)


@resource.post_read(
    "test_stream",
    "/<stream_id>/test",
    needs=_WRITE,
    returns=StreamTest,
    refuses=[STREAM_NOT_FOUND],
)
async def test(call: Call[AuditServices], stream_id: str) -> StreamTest:
    """Send the receiver a record that says that it is a test."""
    async with call.read() as session:
        stream = await _get(session, call, stream_id)
    now = call.services.clock()
    record = {"id": new_id("test"), "created_at": format_us(now), "event": "stream_test"}
    text = msgspec.json.encode({**record, "tenant_id": call.org.id, "stream_id": stream.id})
    line = Line(stream.cursor, round(now.timestamp() * 1e6), "stream_test", text)
    services = call.services
    outcome = await send_lines(services.sender, services.settings, stream, [line], now)
    return StreamTest(accepted=isinstance(outcome, Delivered), answer=outcome.text)


def _new_secret(kind: str, given: str) -> str:
    """The secret to store. Raises NO_SECRET."""
    if kind == "webhook":
        return WEBHOOK_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    is_missing = (kind in _SECRETS and not given) or (kind == "s3" and ":" not in given)
    if is_missing or not (given.isascii() and given.isprintable()):
        raise NO_SECRET(value=_SECRETS.get(kind, "printable ASCII"))
    return given


def _mine(call: Call[AuditServices]) -> ColumnElement[bool]:
    return Stream.tenant_id == call.org.id


async def _get(session: AsyncSession, call: Call[AuditServices], stream_id: str) -> Stream:
    found = await session.scalar(select(Stream).where(_mine(call), Stream.id == stream_id))
    if found is None:
        raise STREAM_NOT_FOUND
    return found


async def _seq_after(call: WriteCall[AuditServices], after: str) -> int:
    """The seq after which rows are sent. Raises NO_ROW."""
    if after == "start":
        return 0
    last = await within(call.session, last_seq)
    seq = last if after == "now" else parse_audit_id(after)
    if seq is None or seq > last:
        raise NO_ROW
    return seq


def _record(call: WriteCall[AuditServices], stream: Stream, change: str, detail: str = "") -> None:
    event = StreamChanged(stream_id=stream.id, name=stream.name, change=change, detail=detail)
    call.work.record(call.org.id, event, call.by, subject=stream.id)


def _created(call: WriteCall[AuditServices], stream: Stream, secret: str) -> CreatedStream:
    shown = secret if stream.kind == "webhook" and secret else None
    return CreatedStream(secret=shown, **_facts(stream, call.work.now, None))


def _facts(stream: Stream, now: datetime, snapshot: Snapshot | None) -> dict[str, Any]:
    spans = [] if snapshot is None else snapshot.spans
    lag_rows = sum(min(rows, max(0, most - stream.cursor)) for _, most, rows in spans)
    since = stream.cursor_at or stream.created_at
    names = ("id", "name", "kind", "url", "format", "query", "state", "parked", "answer")
    return {
        **{name: getattr(stream, name) for name in (*names, "created_by")},
        "cursor": audit_id(stream.cursor),
        "lag_rows": lag_rows,
        "lag_s": max(0, round((now - since).total_seconds())) if lag_rows else 0,
        "answered_at": optional_us(stream.answered_at),
        "created_at": format_us(stream.created_at),
    }
