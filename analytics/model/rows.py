"""An audit row before it is stored, and Arrow tables of such rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Self

import msgspec
import pyarrow as pa

from analytics.model.decision_reason import DECISION_REASON_MAX, compact, decision_reason
from analytics.model.envelopes import VerifiedCi
from analytics.model.events import Envelope
from analytics.model.schema import JOURNAL_SCHEMA


class VerdictSource(StrEnum):
    """Which surface produced a row."""

    PROXY = "proxy"
    ADMIN_API = "admin_api"
    DASHBOARD = "dashboard"
    CLI = "cli"
    SYSTEM = "system"


class Ecosystem(StrEnum):
    """The ecosystem of a package, by package URL type: the same name can exist in several."""

    PYPI = "pypi"
    NPM = "npm"


ACTOR_SOURCES: Final = ("admin_token", "api_key", "session", "system")
"""How actors prove who they are, besides `oidc_<provider>` of verified CI jobs."""

CLAIM_MAX: Final = 256
"""How many code points a row keeps of a claim without a limit of its own."""

FILE_NAME_MAX: Final = 512
CLIENT_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class AuditContext:
    """Who acted, and through which surface: the columns that all rows of a request share.

    `ci` has the claims of the request's CI token, if `oidc_binding_id` verified one.
    """

    actor: str
    actor_source: str
    verdict_source: VerdictSource
    actor_tenant_id: str | None = None
    request_id: str | None = None
    source_ip: str | None = None
    oidc_binding_id: str | None = None
    ci: VerifiedCi | None = None

    def of_ci_job(self, provider: str, oidc_binding_id: str, ci: VerifiedCi) -> Self:
        """The context of a request from a verified CI job; the actor stays the credential's."""
        return replace(
            self, actor_source=f"oidc_{provider}", oidc_binding_id=oidc_binding_id, ci=ci
        )


class AuditRow(msgspec.Struct, frozen=True, gc=False):
    """One row: `AUDIT_SCHEMA` without `seq`, which the commit assigns.

    There can be millions: a struct of plain values, which the garbage collector skips.
    """

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
    ecosystem: str | None = None
    repository_id: str | None = None
    run_id: str | None = None
    token_id: str | None = None
    file_name: str | None = None
    file_sha256: str | None = None
    client: str | None = None


class FileColumns(NamedTuple):
    """Columns of a request for a file through the install proxy; null in all other rows.

    `file_sha256` is in lower-case hex, None if it is not known yet. `client` is the package
    manager's name and version.
    """

    file_name: str | None
    file_sha256: str | None
    client: str | None


NO_FILE_COLUMNS: Final = FileColumns(None, None, None)


def audit_row(
    envelope: Envelope,
    audit_context: AuditContext,
    at: datetime,
    *,
    subject: str | None = None,
    package_name: str | None = None,
    version: str | None = None,
    ecosystem: str | None = None,
    file: FileColumns = NO_FILE_COLUMNS,
    received_at: datetime | None = None,
) -> AuditRow:
    """The row which records that `envelope` happened at `at`, in this audit context.

    `subject` is what the row is about (a binding id, a member id); install rows name their
    package and its ecosystem, and those of the proxy their file. `received_at` is `at` unless the
    row was reported later.
    """
    keys = compact(envelope)
    ci = ci_columns(audit_context.ci)
    return AuditRow(
        created_at=at,
        received_at=received_at or at,
        event=envelope.event,
        package_name=package_name,
        version=version,
        decision=envelope.decision,
        decision_reason=_fit(keys),
        verdict_source=audit_context.verdict_source,
        actor_tenant_id=audit_context.actor_tenant_id,
        actor=audit_context.actor,
        actor_source=audit_context.actor_source,
        subject=subject,
        oidc_binding_id=audit_context.oidc_binding_id,
        request_id=audit_context.request_id,
        source_ip=audit_context.source_ip,
        payload=keys if audit_context.ci is None else _with_ci(keys, audit_context.ci),
        ecosystem=ecosystem,
        repository_id=ci.repository_id,
        run_id=ci.run_id,
        token_id=ci.token_id,
        file_name=file.file_name,
        file_sha256=file.file_sha256,
        client=file.client,
    )


class CiColumns(NamedTuple):
    """Columns of a verified CI request; null in all other rows."""

    repository_id: str | None
    run_id: str | None
    token_id: str | None


NO_CI_COLUMNS: Final = CiColumns(None, None, None)


def ci_columns(ci: VerifiedCi | None) -> CiColumns:
    """The claims of `ci` that are printable text of at most CLAIM_MAX characters."""
    if ci is None:
        return NO_CI_COLUMNS
    return CiColumns(_column(ci.repository_id), _column(ci.run_id), _column(ci.jti))


def _column(claim: str | msgspec.UnsetType | None) -> str | None:
    if claim is None or claim is msgspec.UNSET:
        return None
    return claim if 0 < len(claim) <= CLAIM_MAX and claim.isprintable() else None


def _fit(keys: str) -> str:
    # Nearly every envelope fits unchanged, which shows without decoding it.
    if len(keys) <= DECISION_REASON_MAX:
        return keys
    return decision_reason(msgspec.json.decode(keys))


def _with_ci(keys: str, ci: VerifiedCi) -> str:
    """The JSON object `keys` with the member `ci` added; no envelope has a key of that name."""
    comma = "" if keys == "{}" else ","
    return f'{keys[:-1]}{comma}"ci":{compact(ci)}}}'


def to_table(rows: Sequence[AuditRow]) -> pa.Table:
    """`rows` as a JOURNAL_SCHEMA table, in the same order."""
    columns = list(zip(*map(msgspec.structs.astuple, rows), strict=True))
    columns = columns or [()] * len(JOURNAL_SCHEMA)
    return pa.Table.from_arrays(
        [_array(values, field.type) for values, field in zip(columns, JOURNAL_SCHEMA, strict=True)],
        schema=JOURNAL_SCHEMA,
    )


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """`values` as an Arrow array. The rows of one request share most of their values."""
    if values and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)
