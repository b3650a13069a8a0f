"""What COUNTERSIGN_DATABASE_URL says, as the driver and PostgreSQL's own programs understand it."""

import os
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import URL

from service.core.origins import is_loopback
from service.core.settings import InvalidSetting
from service.store.engines import URL_SETTING
from service.store.postgres.connection import APPLICATION

_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "ssl": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": (
        "any",
        "read-write",
        "read-only",
        "primary",
        "standby",
        "prefer-standby",
    ),
}
"""Options with a choice of values. Driver and libpq know the same ones."""

_VARIABLES: Final = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "database": "PGDATABASE",
    "passfile": "PGPASSFILE",
    "ssl": "PGSSLMODE",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "krbsrvname": "PGKRBSRVNAME",
    "gsslib": "PGGSSLIB",
}
"""The driver's names, and libpq's environment variables of the same meaning."""

_OF_LIBPQ_ALONE: Final = frozenset({"PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGOPTIONS"})
"""Variables that the driver does not read: a program would connect to another server."""

_PLACES: Final = ("user", "password", "database")
"""Their place is before the `?`: a password after it would be shown with the URL."""

_OPTIONS: Final = tuple(name for name in _VARIABLES if name not in _PLACES)
_VERIFY: Final = "verify-full"
_REPEATED: Final = ("host", "port")


def driver_options(url: URL, own: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The arguments of `asyncpg.connect`; several hosts are lists of hosts and of ports.

    `own` are this process's variables, which the driver reads where `url` says nothing. A server on
    another machine is verified by its certificate and name. Raises InvalidSetting for an unknown
    option and for a weaker `ssl`, sqlalchemy's ArgumentError and ValueError for hosts and ports
    that cannot be told apart.
    """
    _check_options(url.query)
    _, options = url.get_dialect()().create_connect_args(url)
    return _verified(dict(options), own)


def _verified(options: dict[str, Any], own: Mapping[str, str]) -> dict[str, Any]:
    """`options`, with TLS to every host that is not this machine. Raises InvalidSetting."""
    if all(_is_here(host) for host in _hosts(options, own)):
        return options
    mode = options.get("ssl") or own.get("PGSSLMODE") or _VERIFY
    if mode != _VERIFY:
        named = "the option ssl" if "ssl" in options else "PGSSLMODE"
        raise InvalidSetting(
            f"{URL_SETTING}: {named} must be {_VERIFY} for a server on another machine: others"
            " could read the connection, or answer in its place; remove it, and name the"
            " certificate of the server's authority in PGSSLROOTCERT"
        )
    return options | {"ssl": _VERIFY}


def _hosts(options: Mapping[str, Any], own: Mapping[str, str]) -> list[str]:
    """The hosts of a connection: those of the URL, else of the variables, else of no network."""
    given = options.get("host") or own.get("PGHOST")
    if not given:
        # A service file can name any host; without one the driver tries this machine's sockets.
        return ["a host of the service file"] if own.get("PGSERVICE") else []
    named = given if isinstance(given, list) else [given]
    return [host.strip() for part in named for host in str(part).split(",")]


def _is_here(host: str) -> bool:
    """True for a Unix socket's folder and for this machine."""
    return host.startswith(("/", "@")) or is_loopback(host)


def program_environment(url: URL, own: Mapping[str, str]) -> dict[str, str]:
    """The environment in which libpq's programs connect as the driver does.

    `own` is this process's: the driver reads libpq's variables, too, where `url` says nothing. A
    password in an argument would be seen by all users of the machine.
    """
    inherited = {
        name: value
        for name, value in own.items()
        if name in {"PATH", "HOME"} or (name.startswith("PG") and name not in _OF_LIBPQ_ALONE)
    }
    given = {_VARIABLES[name]: _joined(value) for name, value in driver_options(url, own).items()}
    return inherited | given | {"PGAPPNAME": APPLICATION}


def _joined(value: object) -> str:
    """The value as libpq has it: several hosts or ports with commas between them."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _check_options(query: Mapping[str, str | tuple[str, ...]]) -> None:
    # With an unencoded `?` in the password, the rest of it would be an option.
    can_be_password = any("@" in name + str(value) for name, value in query.items())
    for name, value in query.items():
        if name not in _OPTIONS:
            shown = "" if can_be_password else f" {name}"
            hint = " (in a password write ? as %3F and @ as %40)" if can_be_password else ""
            raise InvalidSetting(
                f"{URL_SETTING}: unknown option{shown} after `?`{hint}: there are"
                f" {', '.join(_OPTIONS)}"
            )
        if not isinstance(value, str) and name not in _REPEATED:
            raise InvalidSetting(f"{URL_SETTING}: the option {name} is there twice")
        if name in _VALUES and value not in _VALUES[name]:
            raise InvalidSetting(
                f"{URL_SETTING}: the option {name} must be one of {', '.join(_VALUES[name])}"
            )
