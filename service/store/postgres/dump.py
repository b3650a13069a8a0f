"""Dumps of a PostgreSQL database by its own programs: one snapshot, restored completely or not."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from analytics.storage.fsync import fsync
from service.core.errors import Conflict, StoreUnavailable
from service.store.postgres.connection import APPLICATION
from service.store.postgres.connection_url import program_environment
from service.store.store import Store

_CONNECTIONS: Final = sa.text("""
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = :application
""")
_WAITS: Final = (
    "connect_timeout=30 keepalives_idle=30 keepalives_interval=10 keepalives_count=3"
    " tcp_user_timeout=60000"
)
"""For the programs: what they do may take any time, but not with a machine that is gone.

The rest of how they connect is in their environment: other users of the machine see arguments.
"""

_DEBIAN: Final = Path("/usr/lib/postgresql")


PROGRAM_MISSING: Final = Conflict.of(
    "{value} is not on the PATH: install PostgreSQL's client programs (Debian:"
    " postgresql-client), of the server's version or a newer one"
)


class ProgramFailed(StoreUnavailable):
    """A client program ended with an error, such as a full disk or a server that is gone."""

    text = "PostgreSQL's program did not do its work"


@asynccontextmanager
async def exported_snapshot(store: Store) -> AsyncIterator[tuple[AsyncSession, str]]:
    """A read transaction that may take any time, and the id under which a dump sees the same."""
    async with store.read() as session:
        # The limits are for requests; a dump takes as long as it takes.
        for limit in ("idle_in_transaction_session_timeout", "statement_timeout"):
            await session.execute(sa.text(f"SET LOCAL {limit} = 0"))
        snapshot = await session.scalar(sa.text("SELECT pg_export_snapshot()"))
        yield session, str(snapshot)


async def other_connections(connection: AsyncConnection, own: set[int]) -> int:
    """How many connections of Countersign the database of `connection` has.

    Without this one and those of the server's processes in `own`, to which this one is added.
    """
    own.add(await connection.scalar(sa.text("SELECT pg_backend_pid()")) or 0)
    found = await connection.execute(_CONNECTIONS, {"application": APPLICATION})
    return len(set(found.scalars()) - own)


async def dump(url: str, snapshot: str, target: Path) -> None:
    """Write the database as of `snapshot` durably to the new file `target`, mode 0600.

    In pg_dump's custom format: compressed, read by pg_restore. If the caller is cancelled it ends.
    Raises PROGRAM_MISSING, ProgramFailed.
    """
    program = _program("pg_dump")
    # pg_dump would create it readable for others, and it holds hashes of credentials.
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    process = await asyncio.create_subprocess_exec(
        program,
        *("--format=custom", f"--snapshot={snapshot}", "--no-password", f"--dbname={_WAITS}"),
        f"--file={target}",
        env=program_environment(make_url(url), os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    _check(process.returncode, said)
    fsync(target)


def restore(url: str, dumped: Path) -> None:
    """Make the empty database at `url` what `dumped` holds, in one transaction.

    Owner and privileges are those of the user in `url`. Raises PROGRAM_MISSING, ProgramFailed.
    """
    # Our own arguments and a path; no shell reads them.
    ended = subprocess.run(  # noqa: S603
        [
            _program("pg_restore"),
            *("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"),
            *("--no-password", f"--dbname={_WAITS}", str(dumped)),
        ],
        env=program_environment(make_url(url), os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    _check(ended.returncode, ended.stderr)


def _check(code: int | None, said: bytes) -> None:
    """Raise ProgramFailed, with the first line that the program wrote, unless `code` is 0."""
    if code:
        line = next(iter(said.decode(errors="replace").strip().splitlines()), f"exit code {code}")
        raise ProgramFailed from RuntimeError(line)


def _program(name: str) -> str:
    """The newest of Debian's versions, which pg_wrapper may not choose; else that on the PATH."""
    installed: Sequence[Path] = sorted(
        _DEBIAN.glob(f"[0-9]*/bin/{name}"), key=lambda path: int(path.parts[-3])
    )
    program = str(installed[-1]) if installed else shutil.which(name)
    if program is None:
        raise PROGRAM_MISSING(value=name)
    return program
