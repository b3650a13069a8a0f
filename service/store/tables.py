"""Every table, with the invariants the database itself holds."""

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Date,
    Dialect,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Instant(TypeDecorator[datetime]):
    """An aware UTC instant as microseconds since 1970: exact, sortable, the same everywhere."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Microseconds since 1970."""
        return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """The instant again."""
        return None if value is None else _EPOCH + timedelta(microseconds=value)


class Base(DeclarativeBase):
    """The tables' common ground: constraint names that migrations can rely on."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
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

    From `held_since` on, for `held_reason`, a legal hold keeps every row of it from being pruned.
    `trust_revision` goes up with every change of its bindings: who knows the bindings of a revision
    need not read them again until there is another.
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
    """A tier an organisation has left, and when it last did."""

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
    """A person in an organisation. Removed members keep their row: audit rows name them.

    `identity_subject`, unique within `identity_namespace`, is their account at their identity
    provider; both are null until they first sign in with it. From then on no address counts.
    `user_handle` is who they are to their passkeys; null until they register the first.
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
    """A domain whose people a provider may sign in to an organisation without an invitation."""

    __tablename__ = "allowed_domains"

    identity_provider: Mapped[str] = mapped_column(primary_key=True)
    domain: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    added_at: Mapped[datetime]


class SpentSignIn(Base):
    """A step of a sign-in that has been taken, and cannot be again while it would be taken."""

    __tablename__ = "spent_sign_ins"

    id_hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class Team(Base):
    """A group of members that may hold bindings of its own."""

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
    """A signed-in browser. The cookie's token is stored only as its hash.

    `source_ip` and `user_agent` are those of the sign-in, for its owner to recognise it by; a
    session that was issued at the command line has neither.
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
    """A member's WebAuthn credential. `id` is the credential's, in base64url.

    `sign_count` is what the authenticator last said of itself; `use_count` is how often we have
    let somebody in with it. Removed ones stay: whoever tries them is to be recognised.
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
    """A link that signs a member in once."""

    __tablename__ = "sign_in_links"

    token_hash: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class ApiKey(Base):
    """A machine's credential, stored only as its hash."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class Origin(StrEnum):
    """Who vouches for a binding."""

    ORG_ADMIN = "org_admin"
    TEAM_ADMIN = "team_admin"
    PLATFORM_ADMIN = "platform_admin"


class Binding(Base):
    """A trust binding. `slot` is the key of which at most one row is active."""

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
    sub_pattern: Mapped[str] = mapped_column(String(1024))
    repository_id: Mapped[str | None] = mapped_column(String(32))
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
    """A CI identity that was turned away: how often, and when first and last.

    `digest` is over everything that makes two rejections the same one. `is_verified` says that the
    token's signature, audience and time held, so that the issuer says all this; otherwise anybody
    with a credential of the organisation may have made it up.
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
    """A number that only grows, such as the last `seq` given out."""

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int]


class Fact(Base):
    """Something the stored rows depend on, such as the slot rule they were written under."""

    __tablename__ = "facts"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class JournalEntry(Base):
    """A batch of audit rows of one tenant and day that is not yet in a segment.

    `size` is what its rows take in memory, in bytes. It is 0, and there are no bounds of
    `created_at`, in batches from before they were stored.
    """

    __tablename__ = "journal"
    # With these in the index a tenant's journal is counted without reading its batches.
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


class IdempotencyKey(Base):
    """What was answered to a request that its sender may repeat."""

    __tablename__ = "idempotency_keys"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    credential: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[str]
    answer: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(index=True)


class SegmentEntry(Base):
    """The catalog's line for one Parquet file. Retired files stay listed until unlinked.

    Only `retired_at` and the index's columns ever change. `sha256` is that of the file; lines from
    before it was kept have none. `index_size` and `index_sha256` are those of the index file beside
    it, null until it is built.
    """

    __tablename__ = "segments"
    # A snapshot finds the ids of a tenant's live segments in the index alone.
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
    """A file whose rows an organisation has, by the digest of its bytes."""

    __tablename__ = "imported_files"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    rows: Mapped[int]
    refused: Mapped[int]
    imported_at: Mapped[datetime]


class Lease(Base):
    """Who may change segments right now. A new holder always has a higher epoch."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    epoch: Mapped[int]
    expires_at: Mapped[datetime]
