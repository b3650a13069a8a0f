"""Detects commits to a PostgreSQL database, by any node, with one small statement."""

import asyncio
import time
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Final

from service.core.clock import Clock, utc_now
from service.core.errors import StoreUnavailable
from service.store.postgres.connection import Connector, PostgresConnection
from service.store.postgres.faults import DRIVER_ERRORS, driver_faults, fault_of

FRESH_S: Final = 60.0
"""How long a reading is used: in a minute a computer's clock drifts by a few milliseconds."""


class DatabaseClock:
    """A clock that nodes share, even those whose own clock is wrong.

    It is not behind the database's: a time that the database has given is not in its future. It is
    ahead by no more than the quickest reading of the last minute took. Before the first reading it
    is the clock of this machine.
    """

    def __init__(
        self, machine: Clock = utc_now, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._machine = machine
        self._monotonic_s = monotonic_s
        self._zero: datetime | None = None
        """The latest that the database's clock can have shown when the monotonic one was 0."""

        self._taken_s = 0.0

    def __call__(self) -> datetime:
        """The current instant."""
        if self._zero is None:
            return self._machine()
        return self._zero + timedelta(seconds=self._monotonic_s())

    def asking(self) -> Callable[[datetime], None]:
        """Call it before the database is asked for its time, and the result with the answer."""
        asked_s = self._monotonic_s()

        def answer(now: datetime) -> None:
            # The database's clock was read between the two instants of ours.
            answered_s = self._monotonic_s()
            earliest = now - timedelta(seconds=answered_s)
            latest = now - timedelta(seconds=asked_s)
            # The known value stays while this answer allows it and is not more exact.
            is_better = self._zero is None or not earliest <= self._zero < latest
            if is_better or asked_s - self._taken_s >= FRESH_S:
                self._zero, self._taken_s = latest, asked_s

        return answer


_LOOK: Final = "SELECT pg_current_snapshot()::text, clock_timestamp()"


class SnapshotProbe:
    """Asks which transactions are visible: the same ones mean that nothing was committed.

    All requests that arrived before a look was sent share it; none uses one that was sent before
    it arrived, because the commit it must see may be newer. Transactions in flight, of any database
    of the server, change the answer as well: that costs a load, and is never wrong.
    """

    def __init__(self, connector: Connector, clock: DatabaseClock) -> None:
        self._connector = connector
        self._clock = clock
        self._connection: PostgresConnection | None = None
        self._opened = 0
        self._next: asyncio.Future[Hashable] | None = None
        """The answer to the next look, which is not sent yet."""

        self._looking: asyncio.Task[None] | None = None

    async def version(self) -> Hashable:
        """A version that changes with every commit. Raises StoreUnavailable."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self._looking is None:
                self._looking = asyncio.create_task(self._look_while_asked())
        try:
            async with asyncio.timeout(self._connector.wait_s):
                # Shielded: a waiter that gives up must not cancel the answer of the others.
                return await asyncio.shield(self._next)
        except TimeoutError as error:
            raise StoreUnavailable from error

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._looking is not None:
            self._looking.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _look_while_asked(self) -> None:
        try:
            while (asked := self._next) is not None:
                self._next = None  # requests from now on wait for the next look
                try:
                    asked.set_result(await self._look())
                except Exception as fault:
                    asked.set_exception(fault)
                    asked.exception()  # retrieved here: every waiter may have been cancelled
        finally:
            self._looking = None

    async def _look(self) -> Hashable:
        with driver_faults():
            if self._connection is not None:
                try:
                    return await self._ask(self._connection)
                except DRIVER_ERRORS as error:
                    self._hang_up()
                    # The server was stopped meanwhile: it may be there again.
                    if isinstance(error, TimeoutError) or fault_of(error) is not StoreUnavailable:
                        raise
            self._connection = await self._connector.open()
            self._opened += 1
            try:
                return await self._ask(self._connection)
            except BaseException:
                self._hang_up()
                raise

    async def _ask(self, connection: PostgresConnection) -> Hashable:
        answer = self._clock.asking()
        visible, now = await connection.fetchrow(_LOOK)
        answer(now)
        # A new connection may be to another server, which counts its transactions differently.
        return self._opened, visible

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
