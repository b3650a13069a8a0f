"""Streams: where rows are sent, and how far each has come."""

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base


class Stream(Base):
    """A receiver of the organisation's rows.

    All that match `query`, up to seq `cursor`, are accepted but for the `parked` ones, which it
    refused; `cursor_at` is when the last of them was received. Of those up to `reconciled_seq` it
    has a record; `parked_since` are the ids parked after that. `secret` and `former_secret`, which
    it replaced at `rotated_at`, are encrypted. `state` is active, paused or suspended. `revision`
    changes with each change by people. Since `denied_since` the receiver denies everything.
    """

    __tablename__ = "streams"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), index=True)
    name: Mapped[str]
    kind: Mapped[str]
    format: Mapped[str] = mapped_column(default="wire", server_default="wire")
    url: Mapped[str]
    query: Mapped[str]
    secret: Mapped[str]
    former_secret: Mapped[str | None]
    rotated_at: Mapped[datetime | None]
    state: Mapped[str]
    revision: Mapped[int] = mapped_column(default=0)
    cursor: Mapped[int]
    cursor_at: Mapped[datetime | None]
    reconciled_seq: Mapped[int]
    reconciled_at: Mapped[datetime]
    parked: Mapped[int] = mapped_column(default=0)
    parked_since: Mapped[list[str]] = mapped_column(default=list)
    answer: Mapped[str | None]
    answered_at: Mapped[datetime | None]
    denied_since: Mapped[datetime | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
