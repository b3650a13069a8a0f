"""The kinds of receivers: how each is sent a batch of rows, and what tells that it has refused it.

Encoders of wire forms, no clients: `sending.py` sends what they make.
"""

import base64
import gzip
import hmac
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from functools import partial
from typing import Any, Final, Literal, cast
from urllib.parse import quote, urlsplit

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.alert_envelopes import AlertFired
from analytics.model.labels import EVENT_LABELS
from analytics.model.schema import audit_id
from service.audit.streams.sending import MAIL, RELP, SYSLOG, Delivered, Outgoing, Refused, Sender
from service.core.secrets import UnusableSecret, unseal
from service.core.settings import Settings
from service.core.text_rules import visible
from service.store.store import Store
from service.store.tables import Member, Stream

WEBHOOK_PREFIX: Final = "whsec_"
ROTATION: Final = timedelta(days=1)
"""For so long the secret that was replaced signs as well."""

_SYSLOG_PRIORITY: Final = 13 * 8 + 6
"""Facility "log audit", severity "informational" (RFC 5424, 6.2.1)."""
_OTLP_INFO: Final = 9
_REGION: Final = re.compile(r"s3[.-]([a-z]{2}-[a-z-]+-[0-9])\.")

_encode: Final = msgspec.json.Encoder().encode
SinkKind = Literal["webhook", "splunk_hec", "otlp", "syslog", "s3", "chat", "pagerduty", "mail"]
Format = Literal["wire", "ocsf"]
FOR_PEOPLE: Final = {"chat": 20, "pagerduty": 1, "mail": 100}
"""Kinds that send people sentences, with the number of rows in one message."""
ALERTS_ALONE: Final = "event=alert_fired"
"""What people are sent if nothing else is asked for."""
BATCH_ROWS: Final = 1_000
_SENTENCE_MAX: Final = 500
_IN_CODE: Final = str.maketrans({"`": "'", "<": "‹", ">": "›"})
"""What would end code, or has a meaning for Slack even there."""
_MENTION: Final = re.compile(r"@(?=(all|channel|everyone|here)\b)", re.IGNORECASE)


class Line(msgspec.Struct, frozen=True):
    """A row as it is sent: one JSON object, and when it happened and was received."""

    seq: int
    at_us: int
    received_us: int
    event: str
    text: bytes

    @property
    def at(self) -> datetime:
        """When it happened."""
        return instant(self.at_us)


def instant(microseconds: int) -> datetime:
    """The instant so long after 1970."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows on their way to the receiver of `stream`, at `now`, from the host `origin`.

    `secrets` are that of the stream and, while both are used, the one before.
    """

    stream: Stream
    secrets: Sequence[str]
    origin: str
    now: datetime
    lines: Sequence[Line]

    @property
    def ndjson(self) -> bytes:
        """A line for each row."""
        return b"".join(line.text + b"\n" for line in self.lines)

    def outgoing(self, body: bytes, **headers: str) -> Outgoing:
        """The request with this body, and what is after underscores of header names."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return Outgoing(self.stream.url, body, fields, self.hidden)

    @property
    def hidden(self) -> list[str]:
        """The secrets, and the words of which they consist."""
        words = (word for secret in self.secrets for word in re.split("[ :]", secret))
        return [*filter(None, (*self.secrets, *words))]


async def send_lines(
    sender: Sender,
    store: Store,
    settings: Settings,
    stream: Stream,
    lines: Sequence[Line],
    now: datetime,
) -> Delivered | Refused:
    """Send rows to the receiver of a stream. Raises StoreUnavailable."""
    if stream.kind == "mail":
        async with store.read() as session:
            if not await may_mail(session, settings, stream):
                return Refused("denied", NOT_MAILED)
    open_secret = partial(unseal, settings.secret_key, stream.id)
    try:
        secrets = [open_secret(stream.secret)]
    except UnusableSecret:
        return Refused("denied", "COUNTERSIGN_SECRET_KEY has changed: set the secret again")
    if stream.former_secret and stream.rotated_at and now - stream.rotated_at < ROTATION:
        with suppress(UnusableSecret):  # it was set again because of that
            secrets.append(open_secret(stream.former_secret))
    batch = Batch(stream, secrets, urlsplit(settings.public_url).hostname or "", now, lines)
    return await sender.send(_ENCODERS[cast("SinkKind", stream.kind)](batch))


def _webhook(batch: Batch) -> Outgoing:
    """NDJSON, signed as https://www.standardwebhooks.com has it, with each of the secrets."""
    body, timestamp = batch.ndjson, str(int(batch.now.timestamp()))
    name = f"msg_{batch.stream.id}_{batch.lines[0].seq}_{batch.lines[-1].seq}"
    signed = f"{name}.{timestamp}.".encode() + body
    keys = [base64.b64decode(each.removeprefix(WEBHOOK_PREFIX)) for each in batch.secrets]
    digests = [base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys]
    return batch.outgoing(
        body,
        content_type="application/x-ndjson",
        webhook_id=name,
        webhook_timestamp=timestamp,
        webhook_signature=" ".join(f"v1,{digest}" for digest in digests),
    )


def _splunk_hec(batch: Batch) -> Outgoing:
    """Events for Splunk's HTTP Event Collector, one object after the other."""
    facts = {"host": batch.origin, "source": "countersign", "sourcetype": "countersign"}
    members = _encode(facts)[1:-1]
    body = b"".join(
        b'{"time":%d.%06d,%s,"event":%s}\n' % (*divmod(line.at_us, 10**6), members, line.text)
        for line in batch.lines
    )
    token = f"Splunk {batch.secrets[0]}"
    request = batch.outgoing(body, authorization=token, content_type="application/json")
    return replace(request, fault=_hec_fault)


def _hec_fault(body: bytes) -> str | None:
    code = _member(body, "code")
    return f"the collector's code is {code}" if code not in {0, None} else None


def _otlp(batch: Batch) -> Outgoing:
    """Log records of OTLP/HTTP in JSON, whose body is the row's JSON text."""
    records = [
        {
            "timeUnixNano": f"{line.at_us}000",
            "observedTimeUnixNano": f"{int(batch.now.timestamp())}000000000",
            "severityNumber": _OTLP_INFO,
            "eventName": line.event,
            "body": {"stringValue": line.text.decode()},
            "attributes": _attributes({"log.record.uid": audit_id(line.seq)}),
        }
        for line in batch.lines
    ]
    resource = {"service.name": "countersign", "host.name": batch.origin}
    logs = {
        "resource": {"attributes": _attributes({**resource, "tenant": batch.stream.tenant_id})},
        "scopeLogs": [{"scope": {"name": "countersign"}, "logRecords": records}],
    }
    token = {"authorization": batch.secrets[0]} if batch.secrets[0] else {}
    body = _encode({"resourceLogs": [logs]})
    request = batch.outgoing(body, content_type="application/json", **token)
    return replace(request, fault=_otlp_fault)


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _otlp_fault(body: bytes) -> str | None:
    partial = _member(body, "partialSuccess")
    rejected = partial.get("rejectedLogRecords") if isinstance(partial, dict) else None
    return f"{rejected} records were rejected" if rejected not in {None, 0, "0"} else None


def _member(body: bytes, name: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(body, type=dict[str, Any]).get(name)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _syslog(batch: Batch) -> Outgoing:
    """Messages of RFC 5424, for RELP or with their lengths before them, as over TLS (RFC 5425)."""
    messages = [
        f"<{_SYSLOG_PRIORITY}>1 {line.at:%Y-%m-%dT%H:%M:%S.%fZ} {batch.origin} countersign -"
        f" {line.event[:32]} - ".encode()
        + line.text
        for line in batch.lines
    ]
    if urlsplit(batch.stream.url).scheme in RELP:
        return replace(batch.outgoing(b""), messages=messages)
    return batch.outgoing(b"".join(b"%d %s" % (len(each), each) for each in messages))


def _s3(batch: Batch) -> Outgoing:
    """An object of the rows: compressed NDJSON, `org=…/dt=…/seq=<first>-<last>.ndjson.gz`.

    Its clients would connect by themselves, to addresses that are not checked.
    """
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    first, last = batch.lines[0], batch.lines[-1]
    folder = f"org={batch.stream.tenant_id}/dt={first.at:%Y-%m-%d}"
    name = quote(f"{folder}/seq={first.seq:019}-{last.seq:019}.ndjson.gz")
    url = f"{batch.stream.url.rstrip('/')}/{name}"
    key, _, secret = batch.secrets[0].partition(":")
    region = _REGION.search(url)
    request = AWSRequest("PUT", url, data=gzip.compress(batch.ndjson, mtime=0))
    signer = S3SigV4Auth(Credentials(key, secret), "s3", region[1] if region else "us-east-1")
    signer.add_auth(request)
    return Outgoing(url, request.data, dict(request.headers), batch.hidden, method="PUT")


def sentence(line: Line) -> str:
    """What a row says, with its id, in one line without invisible characters."""
    row = msgspec.json.decode(line.text)
    told = row.get("payload") or {}
    if line.event == AlertFired.event:
        of_key = f" of {told['key']}" if told["key"] else ""
        text = f"{told['rule']}: {told['rows']} rows{of_key} since {told['since']}"
    elif line.event in EVENT_LABELS:
        release = "@".join(filter(None, (row["packageName"], row["version"])))
        text = " ".join(filter(None, (EVENT_LABELS[line.event], release, "by", row["actor"])))
    else:
        text = "A test of this stream"
    return visible(f"{text[:_SENTENCE_MAX]} ({row['id']})")


def _chat(batch: Batch) -> Outgoing:
    """A message for an incoming webhook of Slack, Teams or Mattermost: `text`, nothing else.

    Sentences are code, in which none of them sees links, images or mentions. The path of its
    address is the secret.
    """
    sentences = (_MENTION.sub("＠", sentence(line).translate(_IN_CODE)) for line in batch.lines)
    text = "\n".join(f"`{each}`" for each in sentences)
    request = batch.outgoing(_encode({"text": text}), content_type="application/json")
    return replace(request, url=f"{request.url.rstrip('/')}/{batch.secrets[0].lstrip('/')}")


def _pagerduty(batch: Batch) -> Outgoing:
    """An event of PagerDuty's Events API v2; a row that is sent again is the same incident."""
    (line,) = batch.lines
    event = {
        "routing_key": batch.secrets[0],
        "event_action": "trigger",
        "dedup_key": f"{batch.stream.id}:{audit_id(line.seq)}",
        "payload": {
            "summary": sentence(line),
            "source": batch.origin,
            "severity": "warning",
            "timestamp": line.at.isoformat(),
            "custom_details": msgspec.Raw(line.text),
        },
    }
    return batch.outgoing(_encode(event), content_type="application/json")


def _mail(batch: Batch) -> Outgoing:
    """A message in plain text to one address; one that is sent again has the same id."""
    first, last = batch.lines[0].seq, batch.lines[-1].seq
    message = EmailMessage()
    message["To"] = batch.stream.url.removeprefix(MAIL + ":")
    message["Subject"] = sentence(batch.lines[0])
    message["Date"] = batch.now
    message["Message-ID"] = f"<{batch.stream.id}.{first}.{last}@{batch.origin}>"
    message.set_content("\n".join(map(sentence, batch.lines)))
    return batch.outgoing(message.as_bytes())


_ENCODERS: Final[dict[SinkKind, Callable[[Batch], Outgoing]]] = {
    "webhook": _webhook,
    "splunk_hec": _splunk_hec,
    "otlp": _otlp,
    "syslog": _syslog,
    "s3": _s3,
    "chat": _chat,
    "pagerduty": _pagerduty,
    "mail": _mail,
}
SCHEMES: Final[dict[str, tuple[str, ...]]] = {
    kind: {"syslog": (SYSLOG, *RELP), "mail": (MAIL,)}.get(kind, ("https", "http"))
    for kind in _ENCODERS
}


NOT_MAILED: Final = "mail goes to members, and to the domains of COUNTERSIGN_MAIL_DOMAINS"


async def may_mail(session: AsyncSession, settings: Settings, stream: Stream) -> bool:
    """Whether the organisation may send mail to the address, in the operator's name.

    It must be a member's, or of a domain that the operator allows all.
    """
    address = urlsplit(stream.url).path.lower()
    if address.rpartition("@")[2] in map(str.lower, settings.mail_domains):
        return True
    members = select(Member.id).where(
        Member.tenant_id == stream.tenant_id,
        func.lower(Member.email) == address,
        Member.removed_at.is_(None),
    )
    return await session.scalar(members.limit(1)) is not None
