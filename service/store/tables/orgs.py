"""Organisations, and their projects, teams and saved searches."""

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base


class Organisation(Base):
    """A tenant. `role_overrides` maps a role to the capabilities granted beyond its defaults.

    While `held_since` is set, a legal hold (`held_reason`) prevents pruning of its rows.
    `trust_revision` increases with every change of its bindings, so that caches of them can tell
    whether they are current. Its installs were compared with the advisories of the blocklist's
    `matched_generation`, the deny rules of its policy's `matched_revision`, and what registries
    withdrew until `matched_withdrawn_at`.
    """

    __tablename__ = "organisations"

    id: Mapped[str] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(unique=True)
    tier: Mapped[str]
    role_overrides: Mapped[dict[str, list[str]]]
    created_at: Mapped[datetime]
    held_since: Mapped[datetime | None]
    held_reason: Mapped[str | None]
    trust_revision: Mapped[int] = mapped_column(default=0, server_default="0")
    matched_generation: Mapped[int | None]
    matched_revision: Mapped[int | None]
    matched_withdrawn_at: Mapped[datetime | None]


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
