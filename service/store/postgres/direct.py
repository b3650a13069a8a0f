"""Transactions on the driver's connection itself: SQLAlchemy only compiles their statements."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, TypeVar

from sqlalchemy.dialects.postgresql import asyncpg as dialects
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.util import await_only

from service.core.errors import NOT_STORABLE_TEXT, StoreUnavailable
from service.store.postgres.connection import PostgresConnection
from service.store.postgres.faults import (
    driver_faults,
    fault_of,
    is_text_refused,
)
from service.store.transaction import DirectTransaction, PreparedStatement

KEPT_MAX: Final = 10_000
"""How many values transactions may keep for later ones."""


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """The snapshot that a transaction sees, as text, and its own transaction id."""

    visible: str
    own: int

    @property
    def is_next(self) -> bool:
        """True if every transaction with a smaller id has ended, and none with a larger one."""
        return self.visible == _all_before(self.own)

    @property
    def after_commit(self) -> str:
        """What is visible after this transaction's commit, if `is_next` and no other commits."""
        return _all_before(self.own + 1)


def _all_before(transaction_id: int) -> str:
    return f"{transaction_id}:{transaction_id}:"


@dataclass(slots=True)
class KeptValues:
    """The values that the last write transaction left, and what must be visible to use them."""

    visible: str | None = None
    values: dict[Hashable, Any] = field(default_factory=dict)

    def take(self, position: SnapshotPosition) -> dict[Hashable, Any]:
        """The values, or none if another transaction may have committed since.

        They are removed from here: if the transaction fails, they are not true.
        """
        values, is_current = self.values, self.visible == position.visible
        self.visible, self.values = None, {}
        return values if is_current and len(values) <= KEPT_MAX else {}

    def leave(self, position: SnapshotPosition, values: dict[Hashable, Any]) -> None:
        """Keep `values`, which are true as of the transaction's commit, for the next one."""
        # Another transaction that is in flight could commit after this one, unseen by `visible`.
        if position.is_next:
            self.visible, self.values = position.after_commit, values


_Result = TypeVar("_Result")


BEGIN_READING: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
BEGIN_WRITING: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_POSITION: Final = "SELECT pg_current_snapshot()::text, pg_current_xact_id()::text"
_COMMIT: Final = "COMMIT"
_ROLLBACK: Final = "ROLLBACK"
_WITHOUT_ROWS: Final = frozenset({BEGIN_READING, BEGIN_WRITING, _COMMIT, _ROLLBACK})

_prepared: Final = cache(
    partial(PreparedStatement, dialect=dialects.dialect())  # type: ignore[no-untyped-call]
)


class PostgresTransaction(DirectTransaction):
    """A transaction of which each statement is one round trip.

    It runs in a greenlet, which waits in the event loop as SQLAlchemy's own calls do.
    """

    def __init__(self, connection: PostgresConnection, kept: KeptValues | None) -> None:
        """`kept` is that of all writers of the process; None for a read transaction."""
        super().__init__(_prepared)
        self._connection = connection
        self._handed_on = kept
        self._kept: dict[Hashable, Any] | None = None if kept else {}
        self._position: SnapshotPosition | None = None

    @property
    def kept(self) -> dict[Hashable, Any]:
        """Values of earlier transactions; whether they hold is asked when they are first needed."""
        if self._kept is None:
            ((visible, own),) = self.execute(_POSITION)
            self._position = SnapshotPosition(visible, int(own))
            self._kept = self._handed_on.take(self._position) if self._handed_on else {}
        return self._kept

    @kept.setter
    def kept(self, values: dict[Hashable, Any]) -> None:
        self._kept = values

    def commit(self) -> None:
        """Commit, and leave what is kept to the next transaction.

        Raises StoreUnavailable if a statement had failed: PostgreSQL then answers with ROLLBACK,
        which is no error to the driver.
        """
        ((answer,),) = self.execute(_COMMIT)
        if answer != _COMMIT:
            raise StoreUnavailable
        if self._handed_on and self._position and self._kept is not None:
            # Only after the commit: what a failed transaction kept is not true.
            self._handed_on.leave(self._position, self._kept)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one SQL statement and return its rows; of BEGIN and COMMIT, what was done."""
        if not values and sql in _WITHOUT_ROWS:
            return [(await_only(self._connection.execute(sql)),)]  # not prepared: one message
        return [tuple(row) for row in await_only(self._connection.fetch(sql, *values))]


def begin_reading(connection: PostgresConnection) -> PostgresTransaction:
    """Begin a read transaction."""
    transaction = PostgresTransaction(connection, None)
    transaction.execute(BEGIN_READING)
    return transaction


def begin_writing(
    connection: PostgresConnection, lock: str, kept: KeptValues
) -> PostgresTransaction:
    """Begin a write transaction with `lock`, which takes the writer's lock and returns the time."""
    transaction = PostgresTransaction(connection, kept)
    transaction.execute(BEGIN_WRITING)
    ((transaction.began_at,),) = transaction.execute(lock)
    return transaction


def finish(
    transaction: PostgresTransaction, work: Callable[[PostgresTransaction], _Result]
) -> _Result:
    """The result of `work`, once its transaction is committed."""
    try:
        result = work(transaction)
    except Exception as error:
        if fault_of(error) is None:  # otherwise the connection may be gone, and is given up
            transaction.execute(_ROLLBACK)
        raise
    transaction.commit()
    return result


@contextmanager
def discarded_on_failure(pooled: PoolProxiedConnection) -> Iterator[PostgresConnection]:
    """The driver's connection; it is not used again if a transaction may still be open on it."""
    connection: PostgresConnection = pooled.driver_connection  # type: ignore[assignment]
    try:
        with driver_faults(), _text_faults():
            yield connection
    finally:
        if connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
            pooled.invalidate()
        pooled.close()


@contextmanager
def _text_faults() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_text_refused(error):
            raise NOT_STORABLE_TEXT from error
        raise
