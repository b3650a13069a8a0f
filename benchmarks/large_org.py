"""An organisation with 10,000 entries of each kind, and a member of it who is signed in."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import create_engine, insert, select

from service.core.secrets import token_hash
from service.store.tables import (
    ApiKey,
    Binding,
    Member,
    Organisation,
    Project,
    Session,
    Team,
    TeamAdmin,
)

ENTRIES: Final = 10_000
ISSUER: Final = "https://token.actions.githubusercontent.com"
SESSION: Final = {"cookie": f"admin_session=csess_{'s' * 43}", "sec-fetch-site": "same-origin"}
"""The headers of the member's browser."""

_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)

Line = dict[str, Any]


def enlarge(database: Path, slug: str) -> None:
    """Give the organisation its entries, in a SQLite database that no server uses."""
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        tenant_id = connection.scalar(select(Organisation.id).where(Organisation.slug == slug))
        for table, line in _LINES.items():
            lines = [line(number) for number in range(ENTRIES)]
            if hasattr(table, "tenant_id"):
                lines = [line | {"tenant_id": tenant_id} for line in lines]
            connection.execute(insert(table), lines)
    engine.dispose()


def _named(kind: str) -> Callable[[int], Line]:
    return lambda number: {
        "id": f"{kind}_{number}",
        "name": f"{kind}-{number}",
        "created_at": _at(number),
    }


def _at(number: int) -> datetime:
    return _AT + timedelta(seconds=number)


def _member(number: int) -> Line:
    return {
        "id": f"mem_{number}",
        "email": f"person-{number}@example.com",
        "role": "owner" if number == 0 else "member",
        "identity_provider": "google",
        "created_at": _at(number),
    }


def _key(number: int) -> Line:
    return _named("key")(number) | {
        "project_id": f"project_{number}",
        "secret_hash": str(number),
        "scopes": ["packages:install", "audit:ingest"],
        "created_by": f"google:mem_{number}",
    }


def _session(number: int) -> Line:
    now = datetime.now(UTC)
    return {
        "id": f"ses_{number}",
        "member_id": "mem_0",
        "token_hash": token_hash(SESSION["cookie"].partition("=")[2])
        if number == 0
        else str(number),
        "created_at": now,
        "last_seen_at": now,
        "source_ip": "10.0.0.1",
        "user_agent": "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
    }


def _binding(number: int) -> Line:
    return {
        "id": f"obind_{number}",
        "slot": str(number),
        "issuer": ISSUER,
        "sub_pattern": f"repo:acme/service-{number}:ref:refs/heads/main",
        "repository_id": str(number + 1),
        "event_names": ["push"],
        "origin": "org_admin",
        "added_by": "system:admin-token",
        "added_at": _at(number),
    }


_LINES: Final[dict[Any, Callable[[int], Line]]] = {
    Project: _named("project"),
    Team: _named("team"),
    Member: _member,
    TeamAdmin: lambda number: {"team_id": f"team_{number}", "member_id": f"mem_{number}"},
    ApiKey: _key,
    Session: _session,
    Binding: _binding,
}
