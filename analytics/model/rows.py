"""An audit row before it is stored: its columns, and the row of an event."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, NamedTuple, Self

import msgspec

from analytics.model.columns import Column, FieldOfFilter, FilterParameter, Section, TextRule
from analytics.model.decision_reason import DECISION_REASON_MAX, compact, decision_reason
from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import EVENTS, Admission, VerifiedCi
from analytics.model.events import Decision, Envelope


class VerdictSource(StrEnum):
    """Which surface produced a row."""

    PROXY = "proxy"
    ADMIN_API = "admin_api"
    DASHBOARD = "dashboard"
    CLI = "cli"
    SYSTEM = "system"


ACTOR_SOURCES: Final = ("admin_token", "api_key", "machine_token", "session", "system")
"""How actors prove who they are, besides `oidc_<provider>` of verified CI jobs."""

PACKAGE_NAME_MAX: Final = 512
VERSION_MAX: Final = 256
CLAIM_MAX: Final = 256
"""How many code points a row keeps of a claim without a limit of its own."""

FILE_NAME_MAX: Final = 512
CLIENT_MAX: Final = 64

Text = str | None
INSTALL, JOB, REQUEST = Section


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


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row: `AUDIT_SCHEMA` without `seq`, which the commit assigns. Each field is a column.

    There can be millions: a struct of plain values, which the garbage collector skips.
    A new schema version appends columns that are `Text`: older rows are read with null there.
    """

    created_at: Annotated[
        datetime, Column(field_id=2, is_required=True, label="Created", section=INSTALL, place=9)
    ]
    received_at: Annotated[
        datetime, Column(field_id=3, is_required=True, label="Received", section=INSTALL, place=10)
    ]
    event: Annotated[
        str,
        Column(
            field_id=4,
            is_required=True,
            label="Event",
            section=INSTALL,
            place=1,
            filter=FilterParameter(
                description="Event string; repeat for OR, `!` before it negates",
                example="blocklist_hit",
                known=tuple(EVENTS),
                field=FieldOfFilter(place=5, hint="blocklist_hit", suggestions="values-event"),
            ),
        ),
    ]
    package_name: Annotated[
        Text,
        Column(
            field_id=5,
            wire="packageName",
            label="Package",
            max_chars=PACKAGE_NAME_MAX,
            rule=TextRule.PACKAGE,
            is_indexed=True,
            has_head=True,
            has_bloom_filter=True,
            section=INSTALL,
            place=3,
            filter=FilterParameter(
                name="package",
                description="Package name",
                example="left-pad",
                takes_prefix=True,
                field=FieldOfFilter(
                    place=1,
                    hint="left-pad or @acme/*",
                    suggestions="values-package",
                    is_completed=True,
                ),
            ),
        ),
    ] = None
    version: Annotated[
        Text,
        Column(
            field_id=6,
            label="Version",
            max_chars=VERSION_MAX,
            rule=TextRule.PACKAGE,
            is_indexed=True,
            section=INSTALL,
            place=4,
            filter=FilterParameter(
                description="Package version",
                example="1.3.0",
                field=FieldOfFilter(place=2, hint="1.3.0"),
            ),
        ),
    ] = None
    decision: Annotated[
        Text,
        Column(
            field_id=7,
            label="Decision",
            values=Decision,
            section=INSTALL,
            place=2,
            filter=FilterParameter(
                description="Install decision",
                example="BLOCKED",
                known=tuple(Decision),
                field=FieldOfFilter(
                    place=4,
                    hint="only installs have one",
                    options=(("BLOCKED", "Blocked"), ("ALLOWED", "Allowed")),
                ),
            ),
        ),
    ] = None
    decision_reason: Annotated[
        str,
        Column(
            field_id=8,
            label="Decision reason",
            max_chars=DECISION_REASON_MAX,
            section=INSTALL,
            place=8,
        ),
    ]
    verdict_source: Annotated[
        str,
        Column(
            field_id=9,
            is_required=True,
            label="Surface",
            values=VerdictSource,
            section=REQUEST,
            place=4,
            filter=FilterParameter(
                description="The surface that produced the row",
                example="proxy",
                known=tuple(VerdictSource),
                aliases=("surface",),
                field=FieldOfFilter(place=16, hint="proxy or dashboard"),
            ),
        ),
    ]
    actor_tenant_id: Annotated[
        Text,
        Column(field_id=10, label="Actor’s tenant", max_chars=64, section=REQUEST, place=3),
    ] = None
    actor: Annotated[
        str,
        Column(
            field_id=11,
            is_required=True,
            label="Actor",
            max_chars=256,
            is_indexed=True,
            has_head=True,
            has_bloom_filter=True,
            section=REQUEST,
            place=1,
            filter=FilterParameter(
                description="Actor, such as an API key id",
                example="key_5d7f9h1k3m5p7r9t",
                takes_prefix=True,
                aliases=("key", "member", "by"),
                field=FieldOfFilter(
                    place=6,
                    hint="key_… or system:cli",
                    suggestions="values-actor",
                    is_completed=True,
                ),
            ),
        ),
    ]
    actor_source: Annotated[
        str,
        Column(
            field_id=12,
            is_required=True,
            label="Actor source",
            max_chars=64,
            section=REQUEST,
            place=2,
            filter=FilterParameter(
                noun="source",
                description="How the actor proved who they are",
                example="oidc_*",
                takes_prefix=True,
                known=ACTOR_SOURCES,
                has_ci_sources=True,
                field=FieldOfFilter(
                    place=15, hint="oidc_* for any CI job", suggestions="values-source"
                ),
            ),
        ),
    ]
    subject: Annotated[
        Text,
        Column(
            field_id=13,
            label="Subject",
            max_chars=1_024,
            rule=TextRule.SUBJECT,
            is_indexed=True,
            has_head=True,
            has_bloom_filter=True,
            section=JOB,
            place=1,
            filter=FilterParameter(
                description="What the row is about",
                example="repo:acme/*",
                takes_prefix=True,
                aliases=("job", "sub"),
                field=FieldOfFilter(
                    place=7,
                    label="CI job or subject",
                    hint="repo:acme/*",
                    suggestions="values-subject",
                    is_completed=True,
                ),
            ),
        ),
    ] = None
    oidc_binding_id: Annotated[
        Text,
        Column(
            field_id=14,
            label="Binding",
            max_chars=64,
            is_indexed=True,
            has_bloom_filter=True,
            section=JOB,
            place=5,
            filter=FilterParameter(
                description="The binding that the row was attributed to",
                example="obind_7f3k9m2p4q8r1s5t",
                aliases=("binding",),
                field=FieldOfFilter(
                    place=14, hint="obind_…", suggestions="values-binding", is_completed=True
                ),
            ),
        ),
    ] = None
    request_id: Annotated[
        Text,
        Column(
            field_id=15,
            label="Request id",
            max_chars=128,
            section=REQUEST,
            place=7,
            filter=FilterParameter(
                label="Request",
                description="The request that produced the row",
                example="req_019b3c5d7e8f0123456789ab",
                aliases=("request",),
                field=FieldOfFilter(place=18, hint="req_…"),
            ),
        ),
    ] = None
    source_ip: Annotated[
        Text,
        Column(
            field_id=16,
            label="Source address",
            max_chars=64,
            section=REQUEST,
            place=6,
            filter=FilterParameter(
                description="The address the request came from",
                example="192.0.2.7",
                aliases=("ip", "address"),
                field=FieldOfFilter(place=17, hint="192.0.2.7"),
            ),
        ),
    ] = None
    payload: Annotated[str, Column(field_id=17)]
    ecosystem: Annotated[
        Text,
        Column(
            field_id=18,
            since=2,
            label="Ecosystem",
            values=Ecosystem,
            is_indexed=True,
            has_head=True,
            section=INSTALL,
            place=5,
            filter=FilterParameter(
                description="The package's ecosystem",
                example="npm",
                known=tuple(sorted(Ecosystem)),
                field=FieldOfFilter(
                    place=3, options=tuple((value, value) for value in sorted(Ecosystem))
                ),
            ),
        ),
    ] = None
    repository_id: Annotated[
        Text,
        Column(
            field_id=19,
            since=2,
            label="Repository id",
            max_chars=CLAIM_MAX,
            is_indexed=True,
            section=JOB,
            place=3,
            filter=FilterParameter(
                label="Repository",
                description="The repository id that a verified CI token named",
                example="123456789",
                aliases=("repo", "repository"),
                field=FieldOfFilter(place=8, hint="412803377"),
            ),
        ),
    ] = None
    run_id: Annotated[
        Text,
        Column(
            field_id=20,
            since=2,
            label="CI run",
            max_chars=CLAIM_MAX,
            is_indexed=True,
            section=JOB,
            place=2,
            filter=FilterParameter(
                description="The CI run that a verified CI token named",
                example="9876543210",
                aliases=("run",),
                field=FieldOfFilter(place=9, hint="14077220290"),
            ),
        ),
    ] = None
    token_id: Annotated[
        Text,
        Column(
            field_id=21,
            since=2,
            label="CI token",
            max_chars=CLAIM_MAX,
            is_indexed=True,
            section=JOB,
            place=4,
            filter=FilterParameter(
                description="The id (`jti`) of a verified CI token",
                example="6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11",
                aliases=("token",),
                field=FieldOfFilter(place=10, hint="the token’s jti"),
            ),
        ),
    ] = None
    file_name: Annotated[
        Text,
        Column(
            field_id=22,
            since=3,
            label="File",
            max_chars=FILE_NAME_MAX,
            section=INSTALL,
            place=6,
            filter=FilterParameter(
                description="The file that a package manager asked the install proxy for",
                example="left_pad-1.3.0-py3-none-any.whl",
                takes_prefix=True,
                aliases=("file",),
                field=FieldOfFilter(place=11, hint="left_pad-1.3.0*"),
            ),
        ),
    ] = None
    file_sha256: Annotated[
        Text,
        Column(
            field_id=23,
            since=3,
            label="SHA-256 of the file",
            rule=TextRule.SHA256,
            is_indexed=True,
            has_bloom_filter=True,
            section=INSTALL,
            place=7,
            filter=FilterParameter(
                noun="SHA-256",
                description="The SHA-256 of that file, in lower-case hex",
                example="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
                takes_prefix=True,
                aliases=("sha256",),
                is_sha256=True,
                field=FieldOfFilter(place=12, hint="64 hex digits"),
            ),
        ),
    ] = None
    client: Annotated[
        Text,
        Column(
            field_id=24,
            since=3,
            label="Client",
            max_chars=CLIENT_MAX,
            section=REQUEST,
            place=5,
            filter=FilterParameter(
                description="The package manager that asked the install proxy, and its version",
                example="pip/26.3",
                takes_prefix=True,
                field=FieldOfFilter(place=13, hint="pip/26.3 or npm/*"),
            ),
        ),
    ] = None


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
    admission: Admission | None = None,
) -> AuditRow:
    """The row which records that `envelope` happened at `at`, in this audit context.

    `subject` is what the row is about (a binding id, a member id); install rows name their
    package and its ecosystem, and those of the proxy their file, and the `admission` of one that
    was allowed. `received_at` is `at` unless the row was reported later.
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
        payload=_with_members(keys, ci=audit_context.ci, admission=admission),
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


def _with_members(keys: str, **members: msgspec.Struct | None) -> str:
    """The JSON object `keys` with these members added; no envelope has keys of their names."""
    for name, value in members.items():
        if value is not None:
            comma = "" if keys == "{}" else ","
            keys = f'{keys[:-1]}{comma}"{name}":{compact(value)}}}'
    return keys
