"""What COUNTERSIGN_DATABASE_URL says, as the driver and PostgreSQL's own programs understand it."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import URL

from service.settings import InvalidSetting
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
_REPEATED: Final = ("host", "port")


def driver_options(url: URL) -> dict[str, Any]:
    """The arguments of `asyncpg.connect`; several hosts are lists of hosts and of ports.

    Raises InvalidSetting for an unknown option, sqlalchemy's ArgumentError and ValueError for hosts
    and ports that cannot be told apart.
    """
    _check_options(url.query)
    _, options = url.get_dialect()().create_connect_args(url)
    return dict(options)


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
    given = {_VARIABLES[name]: _joined(value) for name, value in driver_options(url).items()}
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
