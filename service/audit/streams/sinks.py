"""The kinds of receivers: how each is sent a batch of rows, and what tells that it has refused it.

Encoders of wire forms, no clients: `sending.py` sends what they make.
"""

import base64
import gzip
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from analytics.model.schema import audit_id
from service.audit.streams.sending import SYSLOG, Outgoing

WEBHOOK_PREFIX: Final = "whsec_"
_SYSLOG_PRIORITY: Final = 13 * 8 + 6
"""Facility "log audit", severity "informational" (RFC 5424, 6.2.1)."""
_OTLP_INFO: Final = 9

_encode: Final = msgspec.json.Encoder().encode
SinkKind = Literal["webhook", "splunk_hec", "otlp", "syslog", "s3"]


@dataclass(frozen=True, slots=True)
class Sink:
    """A receiver. With several `secrets`, the first is the newest one; empty is none."""

    stream_id: str
    tenant_id: str
    kind: SinkKind
    url: str
    region: str
    secrets: Sequence[str]
    origin: str
    """This service's own host, as receivers know it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row as it is sent: one JSON object, when it happened (in microseconds), and its event."""

    seq: int
    at_us: int
    event: str
    text: bytes

    @property
    def at(self) -> datetime:
        """When it happened."""
        return datetime.fromtimestamp(self.at_us // 10**6, UTC).replace(
            microsecond=self.at_us % 10**6
        )


def outgoing(sink: Sink, lines: Sequence[Line], now: datetime) -> list[Outgoing]:
    """The request with these rows; one for each secret where it must be one of them."""
    encode, is_signed = _KINDS[sink.kind]
    secrets = sink.secrets[:1] if is_signed else sink.secrets
    return [encode(sink, lines, now, secret) for secret in secrets]


def _webhook(sink: Sink, lines: Sequence[Line], now: datetime, _: str) -> Outgoing:
    """NDJSON, signed as https://www.standardwebhooks.com has it, with each of the secrets."""
    body = b"".join(line.text + b"\n" for line in lines)
    name = f"msg_{sink.stream_id}_{lines[0].seq}_{lines[-1].seq}"
    timestamp = str(int(now.timestamp()))
    signed = f"{name}.{timestamp}.".encode() + body
    keys = [base64.b64decode(each.removeprefix(WEBHOOK_PREFIX)) for each in sink.secrets]
    digests = [base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys]
    headers = {
        "content-type": "application/x-ndjson",
        "webhook-id": name,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{digest}" for digest in digests),
    }
    return Outgoing(sink.url, body, headers, sink.secrets)


def _splunk_hec(sink: Sink, lines: Sequence[Line], _: datetime, secret: str) -> Outgoing:
    """Events for Splunk's HTTP Event Collector, one object after the other."""
    facts = _encode({"host": sink.origin, "source": "countersign", "sourcetype": "countersign"})
    body = b"".join(
        b'{"time":%d.%06d,%s,"event":%s}\n' % (*divmod(line.at_us, 10**6), facts[1:-1], line.text)
        for line in lines
    )
    headers = {"authorization": f"Splunk {secret}", "content-type": "application/json"}
    return Outgoing(sink.url, body, headers, sink.secrets, fault=_hec_fault)


def _hec_fault(body: bytes) -> str | None:
    code = _member(body, "code")
    return f"the collector's code is {code}" if code not in {0, None} else None


def _otlp(sink: Sink, lines: Sequence[Line], now: datetime, secret: str) -> Outgoing:
    """Log records of OTLP/HTTP in JSON, whose body is the row's JSON text."""
    resource = {"service.name": "countersign", "host.name": sink.origin, "tenant": sink.tenant_id}
    records = [
        {
            "timeUnixNano": f"{line.at_us}000",
            "observedTimeUnixNano": f"{int(now.timestamp())}000000000",
            "severityNumber": _OTLP_INFO,
            "eventName": line.event,
            "body": {"stringValue": line.text.decode()},
            "attributes": _attributes({"log.record.uid": audit_id(line.seq)}),
        }
        for line in lines
    ]
    scoped = {"scope": {"name": "countersign"}, "logRecords": records}
    logs = {"resource": {"attributes": _attributes(resource)}, "scopeLogs": [scoped]}
    headers = {"content-type": "application/json"}
    if secret:
        headers["authorization"] = secret
    body = _encode({"resourceLogs": [logs]})
    return Outgoing(sink.url, body, headers, sink.secrets, fault=_otlp_fault)


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _otlp_fault(body: bytes) -> str | None:
    partial = _member(body, "partialSuccess")
    rejected = partial.get("rejectedLogRecords") if isinstance(partial, dict) else None
    return f"{rejected} records were rejected" if rejected not in {None, 0, "0"} else None


def _member(body: bytes, name: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return answer.get(name) if isinstance(answer, dict) else None


def _syslog(sink: Sink, lines: Sequence[Line], _: datetime, __: str) -> Outgoing:
    """Messages of RFC 5424 with their lengths before them, as over TLS (RFC 5425)."""
    messages = [
        f"<{_SYSLOG_PRIORITY}>1 {line.at:%Y-%m-%dT%H:%M:%S.%fZ} {sink.origin}"
        f" countersign - {line.event[:32]} - ".encode()
        + line.text
        for line in lines
    ]
    return Outgoing(sink.url, b"".join(b"%d %s" % (len(each), each) for each in messages))


def _s3(sink: Sink, lines: Sequence[Line], _: datetime, secret: str) -> Outgoing:
    """An object of the rows: compressed NDJSON, `org=…/dt=…/seq=<first>-<last>.ndjson.gz`."""
    body = gzip.compress(b"".join(line.text + b"\n" for line in lines), mtime=0)
    name = f"seq={lines[0].seq:019}-{lines[-1].seq:019}.ndjson.gz"
    day = f"{lines[0].at:%Y-%m-%d}"
    url = f"{sink.url.rstrip('/')}/org={sink.tenant_id}/dt={day}/{name}"
    key, _sep, secret_key = secret.partition(":")
    headers = _s3_signed(url, body, sink.region, key, secret_key)
    return Outgoing(url, body, headers, (*sink.secrets, secret_key), method="PUT")


def _s3_signed(url: str, body: bytes, region: str, key: str, secret_key: str) -> dict[str, str]:
    """The header fields that sign a PUT; S3's clients would connect to unchecked addresses."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("PUT", url, data=body)
    S3SigV4Auth(Credentials(key, secret_key), "s3", region).add_auth(request)
    return dict(request.headers)


_Encode = Callable[[Sink, Sequence[Line], datetime, str], Outgoing]
_KINDS: Final[dict[SinkKind, tuple[_Encode, bool]]] = {
    "webhook": (_webhook, True),
    "splunk_hec": (_splunk_hec, False),
    "otlp": (_otlp, False),
    "syslog": (_syslog, False),
    "s3": (_s3, False),
}
"""How each is encoded, and whether one request may be signed with all secrets."""

SCHEMES: Final[dict[SinkKind, tuple[str, ...]]] = {
    kind: (SYSLOG,) if kind == "syslog" else ("https", "http") for kind in _KINDS
}
