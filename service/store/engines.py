"""Connections to a database: what each kind of database provides."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from service.core.clock import Clock
from service.core.settings import PREFIX, InvalidSetting
from service.store.transaction import Transaction

URL_SETTING: Final = f"{PREFIX}DATABASE_URL"

_Result = TypeVar("_Result")

CommitObserver = Callable[[Hashable, Hashable], None]
"""Is told the versions of a `CommitWatch` before and after a commit between which no other lies."""


class CommitWatch(Protocol):
    """Detects commits to a database, by any process, without reading what was committed."""

    async def version(self) -> Hashable | None:
        """A version that changes with every commit; None if unavailable.

        As of an instant after the call: a commit confirmed before it is in the version.
        """

    def close(self) -> None:
        """Close the connection, if one is open."""


@dataclass(frozen=True, kw_only=True)
class Engines(ABC):
    """Connections to one database: every commit is durable, every read sees one snapshot.

    Transactions of `writer` start with the write lock, which all nodes share, and so do those of
    `migrator`, which may take any time; those of `reader` have a stable snapshot. `watch` detects
    commits.
    """

    writer: AsyncEngine
    reader: AsyncEngine
    migrator: AsyncEngine
    watch: CommitWatch
    clock: Clock | None = None
    """The database's own clock; None for a database on this machine, which has none."""

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One read transaction; its snapshot is taken by the first statement."""
        return self._transaction(self.reader)

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One write transaction, which has the write lock; leaving the block commits it."""
        return self._transaction(self.writer)

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
            await self.begin(session)
            yield session

    @abstractmethod
    async def begin(self, session: AsyncSession) -> None:
        """Get a connection, and with it the write lock if it is one to write with."""

    @abstractmethod
    async def read_at_once(self, work: Callable[[Transaction], _Result]) -> _Result:
        """The result of `work` in a read transaction."""

    @abstractmethod
    async def write_at_once(
        self, work: Callable[[Transaction], _Result], on_commit: CommitObserver | None = None
    ) -> _Result:
        """The result of `work` in a write transaction, returned after the commit.

        `on_commit` is told of the commit, where that is cheap to know.
        """

    def migration(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """One write transaction that may change tables, and may take any time."""
        return self.migrator.begin()

    async def dispose(self) -> None:
        """Close every connection."""
        self.watch.close()
        for engine in (self.writer, self.reader, self.migrator):
            await engine.dispose()


@contextmanager
def url_faults() -> Iterator[None]:
    """Turn SQLAlchemy's errors about the URL into InvalidSetting."""
    try:
        yield
    except ValueError as error:
        # The error's own text repeats the presumed port, which may be part of a password.
        raise InvalidSetting(f"{URL_SETTING}: the port is not a number") from error
    except (exc.ArgumentError, exc.InvalidRequestError, ImportError) as error:
        raise InvalidSetting(f"{URL_SETTING}: {error}") from error
