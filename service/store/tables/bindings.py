"""Trust bindings, and the CI identities that no binding covers."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import AnyText, Base, partial_index


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
    conditions: Mapped[dict[str, str] | None]
    """The claims that a token must have besides, with their values; None if there are none."""
    origin: Mapped[str]
    added_by: Mapped[str]
    added_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    revoked_by: Mapped[str | None]
    revoked_reason: Mapped[str | None]
    last_used_at: Mapped[datetime | None]
    use_count: Mapped[int] = mapped_column(default=0)
    seen_since: Mapped[datetime | None]
    seen_claims: Mapped[dict[str, dict[str, str]] | None] = mapped_column(deferred=True)
    """What tokens that were admitted since `seen_since` had (seen_claims.py)."""


partial_index("one_active_per_slot", Binding.revoked_at.is_(None), Binding.slot, unique=True)


partial_index("active_by_tenant", Binding.revoked_at.is_(None), Binding.tenant_id)


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
