"""Values that the service keeps about itself: counters, facts and leases."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base


class Counter(Base):
    """A number that only grows, such as the last allocated `seq`.

    `received_at` is the instant of the last rows that were numbered; null before the first ones.
    """

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int]
    received_at: Mapped[datetime | None]


class Fact(Base):
    """A fact that stored rows depend on, such as the slot rule they were written under."""

    __tablename__ = "facts"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Lease(Base):
    """The process that currently may change segments. Each new holder gets a higher epoch."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    epoch: Mapped[int]
    expires_at: Mapped[datetime]
