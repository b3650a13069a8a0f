"""The endpoints of an organisation's streams: where its rows are sent."""

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import UNSET, Meta
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.filters import parse_query
from analytics.model.instants import format_us
from analytics.model.log_envelopes import StreamChanged
from analytics.model.schema import audit_id, parse_audit_id
from analytics.storage.snapshot import Snapshot
from service.access.roles import Capability
from service.audit.services import AuditServices
from service.audit.streams.rows import record_line, rows_behind
from service.audit.streams.sending import Delivered
from service.audit.streams.sinks import (
    ALERTS_ALONE,
    FOR_PEOPLE,
    NOT_MAILED,
    SCHEMES,
    WEBHOOK_PREFIX,
    Format,
    SinkKind,
    may_mail,
    send_lines,
)
from service.core.errors import Conflict, Invalid, NotFound
from service.core.ids import new_id
from service.core.secrets import seal
from service.core.text_rules import NAME_MAX, check_name
from service.store.journal import last_seq
from service.store.tables import Organisation, Stream
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
STREAM_NOT_FOUND: Final = NotFound.of("Stream not found for this org")
STREAM_EXISTS: Final = Conflict.of("a stream of this name exists", field="name")
TOO_MANY_STREAMS: Final = Conflict.of(f"limit of {STREAMS_MAX} streams reached: delete one first")
NO_STREAM_URL: Final = Invalid.of(
    "url must be https://HOST/PATH, of syslog syslog+tls://HOST:PORT or relp+tls://HOST:PORT, of"
    " mail mailto:ADDRESS, and no more",
    field="url",
)
NO_RECIPIENT: Final = Invalid.of(NOT_MAILED, field="url")
NO_SECRET: Final = Invalid.of(
    "secret must be the token of Splunk, KEY_ID:SECRET_KEY of S3, the path of a chat's webhook, the"
    " routing key of PagerDuty, or any printable ASCII",
    field="secret",
)
NO_FORMAT: Final = Invalid.of("format ocsf is not for what people are sent", field="format")
NO_ROW: Final = Invalid.of("after must be start, now or the id of a row", field="after")
_WRITE: Final = Capability.STREAM_WRITE
# Of the characters that RFC 5322 allows without quotes those that lead to no other address.
_ADDRESS: Final = re.compile(r"[a-zA-Z0-9.+_'&=~-]+@[a-zA-Z0-9.-]+")
_WITH_SECRET: Final = {"splunk_hec", "s3", "chat", "pagerduty"}

resource = Resource("streams", "/streams", Tag.STREAMS, AuditServices)

After = Annotated[
    str, Meta(description="Which rows: those after this id, `start` for all, `now` for new ones.")
]
Secret = Annotated[
    str,
    Meta(
        max_length=4096,
        description="A token of Splunk, `authorization` of OTLP, `KEY_ID:SECRET_KEY` of S3. That of"
        " a webhook is made, and answered once.",
    ),
]


class NewStream(Request):
    """A stream to create."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    kind: SinkKind
    url: Annotated[str, Meta(max_length=2_000)]
    format: Annotated[Format, Meta(description="Rows as the API has them, or OCSF 1.8.0.")] = "wire"
    query: Annotated[str, Meta(description="Filters, as of a saved search; empty for all.")] = ""
    after: After = "now"
    secret: Secret = ""


class StreamChange(Request):
    """What is changed of a stream; what is missing stays."""

    state: Omittable[Literal["active", "paused"]] = UNSET
    after: Omittable[After] = UNSET
    secret: Omittable[Secret] = UNSET


class StreamEntry(SecretAnswer):
    """A stream, and how far it is. `secret` is a webhook's new one, in this answer only."""

    id: str
    name: str
    kind: str
    format: str
    url: str
    query: str
    state: Annotated[str, Meta(description="active, paused or suspended.")]
    cursor: Annotated[str, Meta(description="The id up to which rows are delivered.")]
    lag_rows: Annotated[NonNegative, Meta(description="About how many rows it is behind.")]
    lag_s: Annotated[NonNegative, Meta(description="For how long it has been behind.")]
    parked: Annotated[NonNegative, Meta(description="How many rows the receiver refused.")]
    answer: Annotated[str | None, Meta(description="The receiver's last status and answer.")]
    answered_at: TimestampUs | None
    created_by: str
    created_at: TimestampUs
    secret: str | None = None

    @classmethod
    def of(cls, stream: Stream, snapshot: Snapshot, now: datetime, secret: str = "") -> Self:
        """A stream in the API's representation."""
        lag = rows_behind(snapshot, stream.cursor)
        behind = now - (stream.cursor_at or stream.created_at)
        return cls.from_row(
            stream,
            cursor=audit_id(stream.cursor),
            lag_rows=lag,
            lag_s=max(0, round(behind.total_seconds())) if lag else 0,
            secret=secret if secret.startswith(WEBHOOK_PREFIX) else None,
        )


class StreamList(Answer):
    """The organisation's streams, by name."""

    org: str
    streams: list[StreamEntry]


class StreamTest(Answer):
    """What the receiver answered to a record that only says it is a test."""

    accepted: bool
    answer: str


def parse_new_stream(given: dict[str, Any]) -> NewStream:
    """The stream in a request's body. Raises Invalid."""
    new = NewStream.parse(given)
    check_name(new.name)
    if new.kind in FOR_PEOPLE and not new.query:
        new = msgspec.structs.replace(new, query=ALERTS_ALONE)
    try:
        parts = urlsplit(new.url)
        rest = parts.query + parts.fragment + "@" * parts.netloc.count("@")
        is_text = new.url.isascii() and new.url.isprintable() and " " not in new.url
        host = parts.path if new.kind == "mail" and _ADDRESS.fullmatch(parts.path) else ""
        is_url = bool(is_text and (host or parts.hostname) and parts.port != 0 and not rest)
    except ValueError:
        is_url = False
    if not is_url or parts.scheme not in SCHEMES[new.kind]:
        raise NO_STREAM_URL
    if new.kind in FOR_PEOPLE and new.format != "wire":
        raise NO_FORMAT
    try:
        parameters = parse_qs(new.query, keep_blank_values=True, strict_parsing=bool(new.query))
        parse_query(parameters, has_order=False)
    except ValueError as error:  # InvalidQuery is one
        text = f"query must be filters such as package=left-pad: {error}"
        raise Invalid(text, field="query") from error
    return new


@resource.get("list_streams", needs=Capability.STREAM_READ, returns=StreamList)
async def list_(call: Call[AuditServices]) -> StreamList:
    """List the organisation's streams, by name, and how far each is."""
    async with call.read() as session:
        streams = await list_streams(session, call.org)
    snapshot, now = await call.services.store.snapshot(call.org.id), call.services.clock()
    entries = [StreamEntry.of(stream, snapshot, now) for stream in streams]
    return StreamList(org=call.org.slug, streams=entries)


@resource.post(
    "create_stream",
    needs=_WRITE,
    body=Parsed(NewStream, parse_new_stream),
    example={"name": "SIEM", "kind": "webhook", "url": "https://siem.example/rows"},
    returns=StreamEntry,
    status=201,
    is_sensitive=True,
    refuses=[
        NO_STREAM_URL,
        NO_RECIPIENT,
        NO_FORMAT,
        NO_SECRET,
        NO_ROW,
        STREAM_EXISTS,
        TOO_MANY_STREAMS,
    ],
)
async def create(call: WriteCall[AuditServices], new: NewStream) -> StreamEntry:
    """Send the organisation's rows to a receiver from now on, at least once and in order."""
    present = await list_streams(call.session, call.org)
    if new.name in {stream.name for stream in present}:
        raise STREAM_EXISTS
    if len(present) >= STREAMS_MAX:
        raise TOO_MANY_STREAMS
    stream = Stream(
        id=new_id("stream"),
        tenant_id=call.org.id,
        **{name: getattr(new, name) for name in ("name", "kind", "format", "url", "query")},
        revision=0,
        parked=0,
        created_by=call.by.actor,
        created_at=call.work.now,
    )
    if new.kind == "mail" and not await may_mail(call.session, call.services.settings, stream):
        raise NO_RECIPIENT
    given = {"state": "active", "after": new.after, "secret": new.secret}
    created = await _changed(call, stream, given, "created")
    call.session.add(stream)
    return created


@resource.put(
    "change_stream",
    "/<stream_id>",
    needs=_WRITE,
    body=StreamChange,
    example={"state": "paused"},
    returns=StreamEntry,
    is_sensitive=True,
    refuses=[NO_SECRET, NO_ROW, STREAM_NOT_FOUND],
)
async def change(call: WriteCall[AuditServices], body: StreamChange, stream_id: str) -> StreamEntry:
    """Pause or resume a stream, send rows again, or replace its secret.

    The former secret of a webhook signs as well for a day.
    """
    stream = await _get(call.session, call.org, stream_id)
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    return await _changed(call, stream, {name: v for name, v in given.items() if v is not UNSET})


@resource.delete(
    "delete_stream",
    "/<stream_id>",
    needs=_WRITE,
    returns=StreamEntry,
    refuses=[STREAM_NOT_FOUND],
)
async def delete(call: WriteCall[AuditServices], stream_id: str) -> StreamEntry:
    """Send no more rows to a receiver."""
    stream = await _get(call.session, call.org, stream_id)
    await call.session.delete(stream)
    return await _changed(call, stream, {}, "deleted")


@resource.post_read(
    "test_stream",
    "/<stream_id>/test",
    needs=_WRITE,
    returns=StreamTest,
    refuses=[STREAM_NOT_FOUND],
)
async def test(call: Call[AuditServices], stream_id: str) -> StreamTest:
    """Send the receiver a record that says that it is a test."""
    return await send_test(call.services, call.org, stream_id)


async def send_test(services: AuditServices, org: Organisation, stream_id: str) -> StreamTest:
    """What the receiver answers to a record that only says it is a test."""
    stream = await services.store.fetch(_get, org, stream_id)
    now = services.clock()
    record = {"id": new_id("test"), "created_at": format_us(now), "event": "stream_test"}
    about = {"tenant_id": org.id, "stream_id": stream.id}
    line = record_line(stream, stream.cursor, record | about, now)
    outcome = await send_lines(
        services.sender, services.store, services.settings, stream, [line], now
    )
    return StreamTest(accepted=isinstance(outcome, Delivered), answer=outcome.text)


async def list_streams(session: AsyncSession, org: Organisation) -> Sequence[Stream]:
    """The organisation's streams, by name."""
    mine = select(Stream).where(Stream.tenant_id == org.id).order_by(Stream.name)
    return (await session.scalars(mine)).all()


async def _get(session: AsyncSession, org: Organisation, stream_id: str) -> Stream:
    for stream in await list_streams(session, org):
        if stream.id == stream_id:
            return stream
    raise STREAM_NOT_FOUND


async def _changed(
    call: WriteCall[AuditServices], stream: Stream, given: Mapping[str, str], what: str = "changed"
) -> StreamEntry:
    """The stream with another state, place or secret, which is recorded."""
    secret = ""
    if "state" in given:
        stream.state, stream.denied_since = given["state"], None
    if "after" in given:
        stream.cursor = stream.reconciled_seq = await _seq_after(call, given["after"])
        stream.reconciled_at, stream.parked_since = call.work.now, []
    if "secret" in given:
        secret = _new_secret(stream.kind, given["secret"])
        stream.former_secret, stream.rotated_at = stream.secret, call.work.now
        stream.secret = seal(call.services.settings.secret_key, stream.id, secret)
    stream.revision += 1
    place = f"{stream.state} after {audit_id(stream.cursor)}, to {stream.url}"
    detail = f"{place}; {', '.join(given)}" if what == "changed" else place
    event = StreamChanged(stream_id=stream.id, name=stream.name, change=what, detail=detail)
    call.work.record(call.org.id, event, call.by, subject=stream.id)
    snapshot = Snapshot(call.org.id, stream.cursor, (), ())
    return StreamEntry.of(stream, snapshot, call.work.now, secret)


async def _seq_after(call: WriteCall[AuditServices], after: str) -> int:
    """The seq after which rows are sent. Raises NO_ROW."""
    last = await within(call.session, last_seq)
    seq = {"start": 0, "now": last}.get(after, parse_audit_id(after))
    if seq is None or seq > last:
        raise NO_ROW
    return seq


def _new_secret(kind: str, given: str) -> str:
    """The secret to store. Raises NO_SECRET."""
    if kind == "webhook":
        return WEBHOOK_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    is_missing = (kind in _WITH_SECRET and not given) or (kind == "s3" and ":" not in given)
    if is_missing or not (given.isascii() and given.isprintable()):
        raise NO_SECRET
    return given
