"""Install policies, their exceptions, and the blocklist."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base


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

    Its generation holds the whole list: what it imported from `feed`, and what it left as it was.
    While `switched_at` is null its advisories are being loaded; `progress_at` is the last progress.
    `advisories` and `records` count what was imported. `contents` is JSON of `BlocklistContents`,
    null for an import by a version that had no feeds: then the list is that import's alone.
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
    feed: Mapped[str] = mapped_column(server_default="osv")
    contents: Mapped[bytes | None]


class AdvisoryEntry(Base):
    """What one record of a feed says about one package; `spec` is JSON of `AdvisorySpec`.

    Clustered by package: looking one up reads one page, and the table needs no second index.
    `advisory_id` is unique in a package also if several feeds have a record of the same id: for
    feeds other than `osv`, the feed and a space precede the id. No id has a space in it.
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
    feed: Mapped[str] = mapped_column(server_default="osv")


class AdvisoryName(Base):
    """A name of an advisory, its own id or an alias, and a package that it affects.

    For look-ups only: names outlive the generation that they came with, and what is in force is
    in `AdvisoryEntry`, whose `advisory_id` this is.
    """

    __tablename__ = "advisory_names"
    __table_args__ = ({"sqlite_with_rowid": False},)

    name: Mapped[str] = mapped_column(primary_key=True)
    ecosystem: Mapped[str] = mapped_column(primary_key=True)
    package: Mapped[str] = mapped_column(primary_key=True)
    advisory_id: Mapped[str] = mapped_column(primary_key=True)
