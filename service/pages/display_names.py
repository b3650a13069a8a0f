"""Display names of members, keys, teams and projects, which rows name by id."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.labels import event_label
from service.audit.actor_names import names_of_actors
from service.ci.providers import job_label
from service.store.batching import scalars_of
from service.store.tables import Project, Team

NAMED_FILTERS: Final = ("actor", "subject")
"""Filters, and keys of rows, whose values may be members and keys."""

_NAMED_CHARS_MAX: Final = 64
"""Keys and members have short ids; subjects of CI jobs are longer."""


def may_be_named(values: Iterable[str | None]) -> set[str]:
    """Those of `values` that may be the id of a member or a key."""
    return {value for value in values if value and len(value) <= _NAMED_CHARS_MAX}


def value_in_words(name: str, value: str, names: Mapping[str, str]) -> str:
    """A value of the filter `name` for people: an event's label, a CI job's, or one of `names`."""
    if name == "event":
        return event_label(value)
    if name not in NAMED_FILTERS:
        return value
    return names.get(value) or (name == "subject" and job_label(value)) or value


@dataclass(frozen=True, slots=True)
class Person:
    """An actor: `name` is a member's address or a key's name, or else the `actor` of audit rows."""

    name: str
    actor: str


@dataclass(frozen=True, slots=True)
class Names:
    """Names of members and keys by actor, of teams and projects by id, where known."""

    actors: Mapping[str, str] = field(default_factory=dict)
    teams: Mapping[str, str] = field(default_factory=dict)
    projects: Mapping[str, str] = field(default_factory=dict)

    def person(self, actor: str) -> Person:
        """`actor` with its display name."""
        return Person(self.actors.get(actor, actor), actor)


async def find_names(
    session: AsyncSession,
    tenant_id: str,
    *,
    actors: Collection[str] = (),
    teams: Collection[str] = (),
    projects: Collection[str] = (),
) -> Names:
    """The names of those that belong to the organisation, including former members."""
    return Names(
        actors=await names_of_actors(session, tenant_id, actors),
        teams={
            team.id: team.name
            async for team in scalars_of(
                session, select(Team).where(Team.tenant_id == tenant_id), Team.id, list(teams)
            )
        },
        projects={
            project.id: project.name
            async for project in scalars_of(
                session,
                select(Project).where(Project.tenant_id == tenant_id),
                Project.id,
                list(projects),
            )
        },
    )
