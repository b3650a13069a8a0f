"""Evidence: organisations' Merkle trees of rows, signed checkpoints, and what signs them."""

from datetime import date, datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base, partial_index


class EvidenceTree(Base):
    """The tree of an organisation: how many rows it has, and the last of them.

    Its last checkpoint is of `size`. `tail` has the hashes of the leaves behind the last complete
    group. All leaves before `min_index` are pruned. `generation` counts from 1, and with each
    accepted rollback; with `origin` it names the log. While it is `suspended`, for that reason,
    nothing is signed. At `monitored_at` it was last compared with the rows.
    """

    __tablename__ = "evidence_trees"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    origin: Mapped[str]
    generation: Mapped[int]
    size: Mapped[int]
    last_seq: Mapped[int]
    tail: Mapped[bytes]
    min_index: Mapped[int]
    suspended: Mapped[str | None]
    monitored_at: Mapped[datetime | None]


class EvidenceTile(Base):
    """A tile of level 1 or higher: hashes of groups of 256 leaves or hashes below.

    Of level 1 also the `first_seqs` of its groups (see `analytics.evidence.groups`), with that of
    an unfinished group, the first of them apart, and what is stored of the rows of each group:
    `pruned` has a byte for each (`analytics.evidence.groups.Rows`); null: all are.
    """

    __tablename__ = "evidence_tiles"
    __table_args__ = (Index("evidence_tiles_by_seq", "tenant_id", "first_seq"),)

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    level: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    first_seq: Mapped[int | None]
    hashes: Mapped[bytes]
    first_seqs: Mapped[bytes | None]
    pruned: Mapped[bytes | None]


class EvidenceCheckpoint(Base):
    """A signed root of the first `size` rows, the last of which is `last_seq`.

    `signatures` are the lines of its note, those of witnesses included; `key_id` is the key of the
    service's own. `stored_at` is when it was also stored in the bucket.
    """

    __tablename__ = "evidence_checkpoints"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(primary_key=True)
    root: Mapped[bytes]
    last_seq: Mapped[int]
    signed_at: Mapped[datetime]
    key_id: Mapped[str]
    signatures: Mapped[str]
    stored_at: Mapped[datetime | None]


partial_index(
    "evidence_checkpoints_to_store",
    EvidenceCheckpoint.stored_at.is_(None),
    EvidenceCheckpoint.tenant_id,
)


class EvidenceDayKey(Base):
    """The key of the nonces of a day's rows. Pruning the day destroys it."""

    __tablename__ = "evidence_day_keys"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    key: Mapped[bytes]


class PrunedLeaves(Base):
    """The pruned leaves of a group of which rows are left; see `analytics.evidence.groups`."""

    __tablename__ = "evidence_pruned_leaves"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    group_number: Mapped[int] = mapped_column(primary_key=True)
    leaves: Mapped[bytes]


class EvidenceKey(Base):
    """A key pair that signs; the private half is derived from COUNTERSIGN_SECRET_KEY and `id`.

    `public` is in base64. The newest one that is not retired signs.
    """

    __tablename__ = "evidence_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    public: Mapped[str]
    created_at: Mapped[datetime]
    retired_at: Mapped[datetime | None]


class Witness(Base):
    """A witness that is asked to cosign checkpoints: its key (a `vkey`) and its address."""

    __tablename__ = "evidence_witnesses"

    name: Mapped[str] = mapped_column(primary_key=True)
    vkey: Mapped[str]
    url: Mapped[str]
    created_at: Mapped[datetime]
