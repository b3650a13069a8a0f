"""What an audit row is, and how its columns are spelt on the wire."""

from typing import Final

import pyarrow as pa

_INSTANT: Final = pa.timestamp("us", tz="UTC")

AUDIT_SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("created_at", _INSTANT, nullable=False),
        pa.field("received_at", _INSTANT, nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("package_name", pa.string()),
        pa.field("version", pa.string()),
        pa.field("decision", pa.string()),
        pa.field("decision_reason", pa.string()),
        pa.field("verdict_source", pa.string(), nullable=False),
        pa.field("actor_tenant_id", pa.string()),
        pa.field("actor", pa.string(), nullable=False),
        pa.field("actor_source", pa.string(), nullable=False),
        pa.field("subject", pa.string()),
        pa.field("oidc_binding_id", pa.string()),
        pa.field("request_id", pa.string()),
        pa.field("source_ip", pa.string()),
        pa.field("payload", pa.string()),
    ]
)
"""One stored row. The tenant and the day are in the path, so they are not columns."""

JOURNAL_SCHEMA: Final = AUDIT_SCHEMA.remove(AUDIT_SCHEMA.get_field_index("seq"))
"""A row before the commit that gives it a `seq` (`analytics.storage.journal_batches`)."""

WIRE_COLUMNS: Final[dict[str, str]] = {
    "id": "seq",
    "created_at": "created_at",
    "event": "event",
    "packageName": "package_name",
    "version": "version",
    "decision": "decision",
    "decision_reason": "decision_reason",
    "verdict_source": "verdict_source",
    "tenant_id": "",
    "actor_tenant_id": "actor_tenant_id",
    "actor": "actor",
    "actor_source": "actor_source",
    "subject": "subject",
    "oidc_binding_id": "oidc_binding_id",
    "request_id": "request_id",
    "source_ip": "source_ip",
    "received_at": "received_at",
    "payload": "payload",
}
"""Wire name to stored column, in the order of JSON keys and CSV headers.

`tenant_id` is stored nowhere: whoever reads adds the tenant they asked for.
"""

ID_PREFIX: Final = "aud_"
ID_DIGITS: Final = 19  # what the largest int64 takes, so that ids sort like seq


def audit_id(seq: int) -> str:
    """The public id of the row with this `seq`; ids sort as rows were accepted."""
    return f"{ID_PREFIX}{seq:0{ID_DIGITS}d}"


def parse_audit_id(text: str) -> int | None:
    """The `seq` a public id names, or None when it is no such id."""
    digits = text.removeprefix(ID_PREFIX)
    if digits == text or len(digits) != ID_DIGITS or not (digits.isascii() and digits.isdecimal()):
        return None
    seq = int(digits)
    return seq if seq < 2**63 else None
