"""All tables, with the invariants that the database itself enforces."""

from datetime import date, datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Date,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.store.column_types import AnyText, Instant


class Base(DeclarativeBase):
    """Base class of the tables. Names constraints predictably, for migrations."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: AnyText,
        datetime: Instant,
        date: Date,
        int: BigInteger,
        bytes: LargeBinary,
        list[str]: JSON,
        dict[str, int]: JSON,
        dict[str, list[str]]: JSON,
    }


class Organisation(Base):
    """A tenant. `role_overrides` maps a role to the capabilities granted beyond its defaults.

    While `held_since` is set, a legal hold (`held_reason`) prevents pruning of its rows.
    `trust_revision` increases with every change of its bindings, so that caches of them can tell
    whether they are current.
    """

    __tablename__ = "organisations"

    id: Mapped[str] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(unique=True)
    tier: Mapped[str]
    role_overrides: Mapped[dict[str, list[str]]]
    created_at: Mapped[datetime]
    held_since: Mapped[datetime | None]
    held_reason: Mapped[str | None]
    trust_revision: Mapped[int] = mapped_column(default=0)


class FormerTier(Base):
    """A tier that an organisation had before, and when it last left it."""

    __tablename__ = "former_tiers"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    tier: Mapped[str] = mapped_column(primary_key=True)
    left_at: Mapped[datetime]


class Project(Base):
    """A part of an organisation that bindings and API keys may be limited to."""

    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    name: Mapped[str]
    created_at: Mapped[datetime]


class Member(Base):
    """A person in an organisation. Removed members keep their row: audit rows refer to them.

    `identity_subject`, unique within `identity_namespace`, is their account at the identity
    provider. Both are null until the first sign-in with it; afterwards the email address is no
    longer matched. `user_handle` identifies them to their passkeys; null until the first one.
    """

    __tablename__ = "members"
    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    email: Mapped[str]
    role: Mapped[str]
    identity_provider: Mapped[str]
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]
    identity_namespace: Mapped[str | None]
    identity_subject: Mapped[str | None]
    user_handle: Mapped[str | None]


Index(
    "one_member_per_email",
    Member.tenant_id,
    Member.email,
    unique=True,
    sqlite_where=Member.removed_at.is_(None),
    postgresql_where=Member.removed_at.is_(None),
)

Index(
    "one_member_per_identity",
    Member.identity_provider,
    Member.identity_namespace,
    Member.identity_subject,
    Member.tenant_id,
    unique=True,
    sqlite_where=Member.removed_at.is_(None),
    postgresql_where=Member.removed_at.is_(None),
)


class AllowedDomain(Base):
    """A domain whose users may sign in to an organisation through a provider uninvited."""

    __tablename__ = "allowed_domains"

    identity_provider: Mapped[str] = mapped_column(primary_key=True)
    domain: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    added_at: Mapped[datetime]


class SpentSignIn(Base):
    """A sign-in step already used; kept until it expires so that it cannot be replayed."""

    __tablename__ = "spent_sign_ins"

    id_hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class Team(Base):
    """A group of members that may own bindings."""

    __tablename__ = "teams"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    name: Mapped[str]
    created_at: Mapped[datetime]


class TeamAdmin(Base):
    """A member who administers a team."""

    __tablename__ = "team_admins"

    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id"), primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), primary_key=True)


class Session(Base):
    """A signed-in browser. The cookie's token is stored only as a hash.

    `source_ip` and `user_agent` are those of the sign-in, so that the member can recognise the
    session. Both are null if it was issued at the command line.
    """

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    source_ip: Mapped[str | None]
    user_agent: Mapped[str | None]


class Passkey(Base):
    """A member's WebAuthn credential. `id` is the credential id in base64url.

    `sign_count` is the authenticator's last reported counter, `use_count` the number of sign-ins.
    Removed passkeys keep their row, so that attempts to use them are recognised.
    """

    __tablename__ = "passkeys"

    id: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    name: Mapped[str]
    public_key: Mapped[bytes]
    transports: Mapped[list[str]]
    sign_count: Mapped[int]
    use_count: Mapped[int] = mapped_column(default=0)
    added_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    removed_at: Mapped[datetime | None]


class SignInLink(Base):
    """A single-use sign-in link of a member."""

    __tablename__ = "sign_in_links"

    token_hash: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class DeviceSignIn(Base):
    """A command line that asks to be signed in (RFC 8628). Both codes are stored only as hashes.

    `decided_at` is when a member approved it, in `session_id`, or denied it (`session_id` is null).
    `used_at` is when the device received its session: never twice. `source_ip` and `user_agent` are
    those of the request that asked. `interval_s` is how long the device must wait between two
    polls, `polled_at` its last one.
    """

    __tablename__ = "device_sign_ins"

    device_code_hash: Mapped[str] = mapped_column(primary_key=True)
    user_code_hash: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    interval_s: Mapped[int]
    polled_at: Mapped[datetime | None]
    source_ip: Mapped[str | None]
    user_agent: Mapped[str | None]
    session_id: Mapped[str | None] = mapped_column(ForeignKey("sessions.id"))
    decided_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]


class ApiKey(Base):
    """A machine's credential, stored only as a hash.

    `scopes` are what alone the key may do; without any it sends audit rows and installs.
    `created_by` is the actor who issued it; null in keys older than the column. `last_used_at` is
    written behind and up to a minute late. From `expires_at` on the key is refused; null is never.
    `replaces` is the key that it was issued for by rotation.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]] = mapped_column(default=list)
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    created_by: Mapped[str | None]
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    replaces: Mapped[str | None]


class InstallToken(Base):
    """A credential to install with, for which a CI job exchanged its token; stored as a hash.

    It works until `expires_at`, while its API key does. `binding_id` trusted the job when it was
    issued; the claims that follow are the token's, by which bindings are matched again. They are
    shortened as in audit rows, and `token_id` is the `jti`.
    """

    __tablename__ = "install_tokens"
    # Covering index: the tokens of a key are counted from it alone.
    __table_args__ = (Index("install_tokens_of_key", "api_key_id", "expires_at", "token_id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    api_key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    token_hash: Mapped[str] = mapped_column(unique=True)
    binding_id: Mapped[str] = mapped_column(ForeignKey("bindings.id"))
    issuer: Mapped[str]
    sub: Mapped[str]
    repository_id: Mapped[str | None]
    event_name: Mapped[str | None]
    run_id: Mapped[str | None]
    token_id: Mapped[str | None]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class InstallMark(Base):
    """The last audit row of an install, so that its repeats add none.

    `install` is a hash of the organisation, the credential, the file and the event.
    """

    __tablename__ = "install_marks"

    install: Mapped[str] = mapped_column(primary_key=True)
    recorded_at: Mapped[datetime] = mapped_column(index=True)
    seq: Mapped[int]


class Origin(StrEnum):
    """The authority that created a binding."""

    ORG_ADMIN = "org_admin"
    TEAM_ADMIN = "team_admin"
    PLATFORM_ADMIN = "platform_admin"


class Binding(Base):
    """A trust binding. At most one active row exists per `slot`."""

    __tablename__ = "bindings"
    __table_args__ = (
        Index("bindings_newest_first", "tenant_id", "added_at", "id"),
        Index("bindings_by_repository", "repository_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    team_id: Mapped[str | None] = mapped_column(ForeignKey("teams.id"))
    slot: Mapped[str]
    issuer: Mapped[str]
    sub_pattern: Mapped[str] = mapped_column(AnyText(1024))
    repository_id: Mapped[str | None] = mapped_column(AnyText(32))
    event_names: Mapped[list[str]]
    origin: Mapped[str]
    added_by: Mapped[str]
    added_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    revoked_by: Mapped[str | None]
    revoked_reason: Mapped[str | None]
    last_used_at: Mapped[datetime | None]
    use_count: Mapped[int] = mapped_column(default=0)


Index(
    "one_active_per_slot",
    Binding.slot,
    unique=True,
    sqlite_where=Binding.revoked_at.is_(None),
    postgresql_where=Binding.revoked_at.is_(None),
)


class RejectedSubject(Base):
    """A rejected CI identity: its number of rejections, and the first and last of them.

    `digest` covers all fields that identify the rejection. `is_verified` means that the token's
    signature, audience and times were valid, so its claims come from the issuer. Otherwise any
    holder of a credential of the organisation may have made them up.
    """

    __tablename__ = "rejected_subjects"
    __table_args__ = (Index("rejected_lately", "tenant_id", "is_verified", "last_at"),)

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    is_verified: Mapped[bool]
    code: Mapped[str]
    detail: Mapped[str | None]
    issuer: Mapped[str | None]
    sub: Mapped[str | None]
    repository_id: Mapped[str | None]
    event_name: Mapped[str | None]
    owner: Mapped[str | None]
    project_id: Mapped[str | None]
    count: Mapped[int]
    first_at: Mapped[datetime]
    last_at: Mapped[datetime]
    last_request_id: Mapped[str]


class Counter(Base):
    """A number that only grows, such as the last allocated `seq`."""

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int]


class Fact(Base):
    """A fact that stored rows depend on, such as the slot rule they were written under."""

    __tablename__ = "facts"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class JournalEntry(Base):
    """A batch of audit rows of one tenant and day that is not yet in a segment.

    `size` is the memory its rows take, in bytes. Batches older than these columns have size 0 and
    no bounds of `created_at`.
    """

    __tablename__ = "journal"
    # Covering index: a tenant's journal is counted without reading its batches.
    __table_args__ = (Index("journal_by_day", "tenant_id", "day", "rows", "size"),)

    first_seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    day: Mapped[date]
    rows: Mapped[int]
    size: Mapped[int] = mapped_column(default=0)
    min_created_at: Mapped[datetime | None]
    max_created_at: Mapped[datetime | None]
    received_at: Mapped[datetime]
    data: Mapped[bytes]


class SavedSearch(Base):
    """Filters of the audit log under a name, for everyone in the organisation who may read it."""

    __tablename__ = "saved_searches"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    name: Mapped[str]
    query: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[datetime]


class PolicyRevision(Base):
    """An install policy as it was from `changed_at` on, until the next revision.

    The highest revision of an organisation is in force. `document` is compact JSON; `sha256` is its
    digest, which the audit row of the change names.
    """

    __tablename__ = "policy_revisions"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    document: Mapped[bytes]
    sha256: Mapped[str]
    changed_by: Mapped[str]
    changed_at: Mapped[datetime]


class PolicyException(Base):
    """A request to let one release through; `state` is open, allowed or declined.

    An allowed one has its rule in the policy, under the id of the request.
    """

    __tablename__ = "policy_exceptions"
    __table_args__ = (
        Index("policy_exceptions_newest_first", "tenant_id", "state", "requested_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    ecosystem: Mapped[str]
    package: Mapped[str]
    version: Mapped[str]
    reason: Mapped[str]
    requested_by: Mapped[str]
    requested_at: Mapped[datetime]
    state: Mapped[str]
    decided_by: Mapped[str | None]
    decided_at: Mapped[datetime | None]
    decided_reason: Mapped[str | None]


class BlocklistImport(Base):
    """An import of advisories. The last one with `switched_at` is in force, for all organisations.

    While `switched_at` is null its advisories are being loaded, `progress_at` says when last.
    `advisories` counts its rows in that table, `records` the records they come from.
    """

    __tablename__ = "blocklist_imports"

    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    source: Mapped[str]
    sha256: Mapped[str]
    ids: Mapped[list[str]]
    imported_by: Mapped[str]
    started_at: Mapped[datetime]
    progress_at: Mapped[datetime]
    switched_at: Mapped[datetime | None]
    records: Mapped[int] = mapped_column(default=0)
    advisories: Mapped[int] = mapped_column(default=0)
    withdrawn: Mapped[int] = mapped_column(default=0)
    unreadable: Mapped[int] = mapped_column(default=0)


class AdvisoryEntry(Base):
    """What one OSV record says about one package; `spec` is JSON of `AdvisorySpec`.

    Clustered by package: looking one up reads one page, and the table needs no second index.
    """

    __tablename__ = "advisories"
    __table_args__ = ({"sqlite_with_rowid": False},)

    generation: Mapped[int] = mapped_column(
        ForeignKey("blocklist_imports.generation"), primary_key=True, autoincrement=False
    )
    ecosystem: Mapped[str] = mapped_column(primary_key=True)
    package: Mapped[str] = mapped_column(primary_key=True)
    advisory_id: Mapped[str] = mapped_column(primary_key=True)
    spec: Mapped[bytes]


class IdempotencyKey(Base):
    """The stored answer to a repeatable request."""

    __tablename__ = "idempotency_keys"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    credential: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[str]
    answer: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(index=True)


class SegmentEntry(Base):
    """The catalog's line for one Parquet file. Retired files stay listed until unlinked.

    Only `retired_at` and the index columns ever change. `sha256` is the digest of the file; null
    in lines older than the column. `index_size` and `index_sha256` describe the index file; null
    until it is built.
    """

    __tablename__ = "segments"
    # Covering index: a snapshot lists the ids of a tenant's live segments from it alone.
    __table_args__ = (Index("segments_by_day", "tenant_id", "retired_at", "day", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    day: Mapped[date]
    rows: Mapped[int]
    size: Mapped[int]
    min_created_at: Mapped[datetime]
    max_created_at: Mapped[datetime]
    min_seq: Mapped[int]
    max_seq: Mapped[int]
    event_counts: Mapped[dict[str, int]]
    decision_counts: Mapped[dict[str, int]]
    seq_base: Mapped[int] = mapped_column(default=0)
    schema_version: Mapped[int] = mapped_column(default=1)
    sha256: Mapped[str | None]
    index_size: Mapped[int | None]
    index_sha256: Mapped[str | None]
    sealed_at: Mapped[datetime]
    retired_at: Mapped[datetime | None]


class ImportedFile(Base):
    """A file imported into an organisation, identified by the digest of its bytes."""

    __tablename__ = "imported_files"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    rows: Mapped[int]
    refused: Mapped[int]
    imported_at: Mapped[datetime]


class ExportEntry(Base):
    """One export of audit rows: what was asked for, and what became of it.

    Written in the transactions of its audit rows. `filters` are as given; `since` and `until` are
    the bounds that applied, the retention floor included (null: none). `rows` were counted before
    the first byte, no row after seq `watermark` among them. `sent_rows` and `sent_bytes` are
    updated every few seconds, at `progress_at`, until `ended_at`; `is_complete` and `sha256`, the
    digest of the file, come with the end.
    """

    __tablename__ = "exports"
    __table_args__ = (Index("exports_newest_first", "tenant_id", "started_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    actor: Mapped[str]
    actor_source: Mapped[str]
    verdict_source: Mapped[str]
    request_id: Mapped[str | None]
    format: Mapped[str]
    compression: Mapped[str | None]
    is_raw: Mapped[bool]
    filters: Mapped[dict[str, list[str]]]
    since: Mapped[datetime | None]
    until: Mapped[datetime | None]
    retention_floor: Mapped[datetime | None]
    watermark: Mapped[int]
    rows: Mapped[int]
    version: Mapped[str]
    started_at: Mapped[datetime]
    progress_at: Mapped[datetime]
    sent_rows: Mapped[int] = mapped_column(default=0)
    sent_bytes: Mapped[int] = mapped_column(default=0)
    ended_at: Mapped[datetime | None]
    is_complete: Mapped[bool | None]
    sha256: Mapped[str | None]


Index(
    "exports_under_way",
    ExportEntry.progress_at,
    sqlite_where=ExportEntry.ended_at.is_(None),
    postgresql_where=ExportEntry.ended_at.is_(None),
)


class Lease(Base):
    """The process that currently may change segments. Each new holder gets a higher epoch."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    epoch: Mapped[int]
    expires_at: Mapped[datetime]


class LakeTable(Base):
    """An open table over the segments, as it was last published.

    `tenant_id` is empty for the operator's table, which has all organisations. `version` is its
    current one (see `analytics.open_table.table_format`), `complete_through_seq` what that says.
    """

    __tablename__ = "lake_tables"

    format: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    location: Mapped[str]
    version: Mapped[str]
    snapshot: Mapped[str | None]
    snapshots: Mapped[int]
    files: Mapped[int]
    rows: Mapped[int]
    complete_through_seq: Mapped[int]
    created_at: Mapped[datetime]
    published_at: Mapped[datetime]


class IcebergTable(Base):
    """The current metadata file of an Iceberg table, as Iceberg's SQL catalogs store it.

    Table and columns are those of pyiceberg's SqlCatalog and of Java's JdbcCatalog.
    """

    __tablename__ = "iceberg_tables"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    metadata_location: Mapped[str | None] = mapped_column(String(1000))
    previous_metadata_location: Mapped[str | None] = mapped_column(String(1000))
    iceberg_type: Mapped[str | None] = mapped_column(String(5))


class IcebergNamespaceProperty(Base):
    """A namespace of those catalogs."""

    __tablename__ = "iceberg_namespace_properties"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_value: Mapped[str | None] = mapped_column(String(1000))
