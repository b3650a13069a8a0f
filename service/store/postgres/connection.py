"""Opening connections to PostgreSQL: durable, with every wait limited, and quick to close."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SOL_SOCKET,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_USER_TIMEOUT,
)
from typing import Any, Final

import asyncpg

from service.core.errors import OPERATOR_S, StoreUnavailable
from service.core.settings import InvalidSetting
from service.store.engines import URL_SETTING
from service.store.postgres.faults import driver_faults

STORAGE_UNSAFE: Final = StoreUnavailable.of(
    "the database is not set up for this service: the log says what to change",
    retry_after_s=OPERATOR_S,
)

APPLICATION: Final = "countersign"
"""What the server shows of each connection, in pg_stat_activity."""

VERSION_MIN: Final = 15
DURABLE: Final = ("on", "remote_apply", "remote_write")
"""Values of `synchronous_commit` with which a commit is confirmed once it is on the disk.

`local` is not among them: it ignores the standbys that an operator named as synchronous.
"""

_CLOSE_S: Final = 0.2
"""How long a graceful close may take: a process that ends closes ten connections in turn."""

_PROBES: Final = 3
"""How many keepalive probes without an answer end a connection."""

_DAY_S: Final = 86_400
_ON_SERVER: Final = 0.9
"""The share of a wait after which the server ends it: before we give the connection up."""
_CHECK: Final = """
    SELECT current_setting('server_version_num')::int / 10000,
           current_setting('server_encoding'),
           current_setting('fsync'),
           current_setting('synchronous_commit')
"""


class PostgresConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that hangs up rather than wait for a graceful end."""

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncpg has it
        """Close gracefully; hang up if a `timeout` is given, as SQLAlchemy does after a fault.

        The server ends the transaction of a connection that is gone, and releases its locks.
        """
        if timeout is None:
            with suppress(TimeoutError, OSError):  # the connection is closed in any case
                await super().close(timeout=_CLOSE_S)
        else:
            self.terminate()


@dataclass(frozen=True, slots=True)
class Connector:
    """Opens connections to one database on which no wait takes longer than `wait_s` seconds.

    `options` are those of `asyncpg.connect`. Without `limits_statements` a transaction and its
    statements may take any time, as a migration may: only the wait for a lock is limited.
    """

    options: dict[str, Any]
    wait_s: float
    limits_statements: bool = True

    async def open(self) -> PostgresConnection:
        """A new connection. Raises StoreUnavailable, STORAGE_UNSAFE, InvalidSetting."""
        with driver_faults():
            try:
                async with asyncio.timeout(self.wait_s):
                    connection: PostgresConnection = await asyncpg.connect(
                        **self.options,
                        connection_class=PostgresConnection,
                        timeout=self.wait_s,
                        command_timeout=self.wait_s if self.limits_statements else None,
                        server_settings=self._settings(),
                    )
                    _notice_loss(connection, self.wait_s)
                    await _check(connection)
            except asyncpg.PostgresError as error:
                # Such as a wrong password or a database that is not there: nothing was asked yet.
                raise StoreUnavailable from error
            except asyncpg.ClientConfigurationError as error:
                # Of a service file, or of one of libpq's variables.
                raise InvalidSetting(f"{URL_SETTING}: {error}") from error
        return connection

    def _settings(self) -> dict[str, str]:
        limit = str(max(1, int(self.wait_s * _ON_SERVER * 1000)))
        return {
            "application_name": APPLICATION,
            "timezone": "UTC",
            "lock_timeout": limit,
            "statement_timeout": limit if self.limits_statements else "0",
            # A paused process must not keep the writer's lock from all others.
            "idle_in_transaction_session_timeout": limit if self.limits_statements else "0",
            "client_connection_check_interval": "1000",
            # A node whose machine is gone must not keep its connections, of which there are few.
            "tcp_keepalives_idle": str(_whole(self.wait_s)),
            "tcp_keepalives_interval": str(_whole(self.wait_s / _PROBES)),
            "tcp_keepalives_count": str(_PROBES),
            "tcp_user_timeout": str(_whole(self.wait_s) * 1000),
        }


def _whole(seconds: float) -> int:
    """The same in whole seconds, as TCP has it: one at least, and a day at most."""
    return min(max(1, round(seconds)), _DAY_S)


def _notice_loss(connection: PostgresConnection, wait_s: float) -> None:
    """Have the kernel end the connection once the server's machine has not answered for long.

    Otherwise each connection of a pool would be found lost by a request, which waits for it.
    """
    used = connection._transport.get_extra_info("socket")
    if used is not None and used.family in {AF_INET, AF_INET6}:
        used.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        used.setsockopt(IPPROTO_TCP, TCP_KEEPIDLE, _whole(wait_s))
        used.setsockopt(IPPROTO_TCP, TCP_KEEPINTVL, _whole(wait_s / _PROBES))
        used.setsockopt(IPPROTO_TCP, TCP_KEEPCNT, _PROBES)
        used.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, _whole(wait_s) * 1000)


async def _check(connection: PostgresConnection) -> None:
    """Raise STORAGE_UNSAFE, and hang up, unless a confirmed commit survives a power loss."""
    version, encoding, fsync, synchronous_commit = await connection.fetchrow(_CHECK)
    wrong = None
    if version < VERSION_MIN:
        wrong = f"PostgreSQL {version} is too old: use {VERSION_MIN} or newer"
    elif encoding != "UTF8":
        wrong = f"the database's encoding is {encoding}: create it with ENCODING 'UTF8'"
    elif fsync != "on":
        wrong = f"fsync is {fsync}: set it to on"
    elif synchronous_commit not in DURABLE:
        wrong = f"synchronous_commit is {synchronous_commit}: set it to on"
    if wrong is not None:
        connection.terminate()
        raise STORAGE_UNSAFE from ValueError(wrong)
