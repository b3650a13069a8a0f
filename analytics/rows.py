"""An audit row before it is stored, and Arrow tables of such rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum

import msgspec
import pyarrow as pa

from analytics.envelopes import compact, decision_reason
from analytics.events import Envelope
from analytics.schema import JOURNAL_SCHEMA


class VerdictSource(StrEnum):
    """Which surface produced a row."""

    PROXY = "proxy"
    ADMIN_API = "admin_api"
    DASHBOARD = "dashboard"
    CLI = "cli"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who acted, through which door: the columns every row of one request has in common."""

    actor: str
    actor_source: str
    verdict_source: VerdictSource
    actor_tenant_id: str | None = None
    request_id: str | None = None
    source_ip: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row, `AUDIT_SCHEMA` without `seq`: that comes with the commit."""

    created_at: datetime
    received_at: datetime
    event: str
    package_name: str | None
    version: str | None
    decision: str | None
    decision_reason: str
    verdict_source: str
    actor_tenant_id: str | None
    actor: str
    actor_source: str
    subject: str | None
    oidc_binding_id: str | None
    request_id: str | None
    source_ip: str | None
    payload: str


def audit_row(
    envelope: Envelope,
    stamp: Stamp,
    at: datetime,
    *,
    subject: str | None = None,
) -> AuditRow:
    """The row that says `envelope` happened at `at`, by whom `stamp` names.

    `subject` is what the row is about (a binding id, a member id).
    """
    keys = msgspec.to_builtins(envelope)
    return AuditRow(
        created_at=at,
        received_at=at,
        event=envelope.event,
        package_name=None,
        version=None,
        decision=envelope.decision,
        decision_reason=decision_reason(keys),
        verdict_source=stamp.verdict_source,
        actor_tenant_id=stamp.actor_tenant_id,
        actor=stamp.actor,
        actor_source=stamp.actor_source,
        subject=subject,
        oidc_binding_id=None,
        request_id=stamp.request_id,
        source_ip=stamp.source_ip,
        payload=compact(keys),
    )


def to_table(rows: Sequence[AuditRow]) -> pa.Table:
    """`rows` as a JOURNAL_SCHEMA table, in the same order."""
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=JOURNAL_SCHEMA)
