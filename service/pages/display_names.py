"""Values in words: names for ids of members, keys, teams and projects; active filters; ages."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.filters import BOUND_PARAMETERS, FILTER_COLUMNS, InvalidQuery, parse_term
from analytics.model.labels import FILTER_LABELS, event_label
from service.audit.actor_names import names_of_actors
from service.ci.providers import job_label
from service.pages.state import PageState, bound
from service.store.batching import scalars_of
from service.store.tables import Project, Team

NAMED_FILTERS: Final = ("actor", "subject")
"""Filters, and keys of rows, whose values may be members and keys."""

_NAMED_CHARS_MAX: Final = 64
"""Keys and members have short ids; subjects of CI jobs are longer."""

_DAY_S: Final = 86_400
_YEAR_S: Final = 365 * _DAY_S
_AGO: Final = (("min", 60, 60), ("h", 3_600, 48), ("d", _DAY_S, 60), ("mo", 30 * _DAY_S, 13))


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
class NamedActor:
    """An actor: `name` is a member's address or a key's name, or else the `actor` of audit rows."""

    name: str
    actor: str


@dataclass(frozen=True, slots=True)
class Names:
    """Names of members and keys by actor, of teams and projects by id, where known."""

    actors: Mapping[str, str] = field(default_factory=dict)
    teams: Mapping[str, str] = field(default_factory=dict)
    projects: Mapping[str, str] = field(default_factory=dict)

    def person(self, actor: str) -> NamedActor:
        """`actor` with its display name."""
        return NamedActor(self.actors.get(actor, actor), actor)


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


@dataclass(frozen=True, slots=True)
class Chip:
    """One active filter: `label` `relation` `value`, and the link to the page without it.

    `at` is the instant of a time.
    """

    label: str
    relation: str
    value: str
    remove: str
    at: datetime | None = None


def active_chips(state: PageState, names: Mapping[str, str]) -> list[Chip]:
    """All filters of `state` that exclude rows, the window first; members and keys by `names`."""
    return [*_window_chips(state), *value_chips(state, state.parameters, names)]


def named_by(filters: Mapping[str, Sequence[str]]) -> set[str]:
    """The actors and subjects that `filters` name."""
    return may_be_named(
        _meaning(name, value)[1] for name in NAMED_FILTERS for value in filters.get(name, ())
    )


def _window_chips(state: PageState) -> Iterator[Chip]:
    for name in ("last", *BOUND_PARAMETERS):
        for value in state.parameters.get(name, ()):
            try:
                at = None if name == "last" else bound(name, value)
            except ValueError:
                at = None
            is_instant = at is not None and "T" in value
            words = f"{at:%Y-%m-%d %H:%M:%S.%f}".removesuffix(".000000") if is_instant else value
            yield Chip("Time", name, words, state.removing(name, value).href, at)


def value_chips(
    state: PageState, filters: Mapping[str, Sequence[str]], names: Mapping[str, str]
) -> Iterator[Chip]:
    """Those of the active filters of `state` that are in `filters`."""
    for name in FILTER_COLUMNS:
        for value in filters.get(name, ()):
            relation, text = _meaning(name, value)
            # A CI job by its whole subject: two may share a label.
            words = event_label(text) if name == "event" else text
            if name in NAMED_FILTERS:
                words = names.get(text, text)
            yield Chip(FILTER_LABELS[name], relation, words, state.removing(name, value).href)


def _meaning(name: str, value: str) -> tuple[str, str]:
    try:
        term = parse_term(name, value)
    except InvalidQuery:
        return "is", value
    if term.is_prefix:
        return ("does not begin with" if term.is_negated else "begins with"), term.text
    return ("is not" if term.is_negated else "is"), term.text


def ago(length: timedelta) -> str:
    """How long ago in one short unit: `now`, `5 min`, `3 h`, `12 d`, `4 mo`, `2 y`."""
    seconds = length.total_seconds()
    for unit, unit_s, most in _AGO:
        if seconds < unit_s * most:
            return f"{int(seconds // unit_s)} {unit}" if seconds >= unit_s else "now"
    return f"{int(seconds // _YEAR_S)} y"


def age(at: datetime, now: datetime) -> str:
    """How long before `now` the instant `at` was: `now`, `5 min ago`, `3 h ago`, `2 y ago`."""
    length = ago(now - at)
    return length if length == "now" else f"{length} ago"


def initials(name: str) -> str:
    """At most two letters of a name or address: `ML` of `mara.lindqvist@acme.example`."""
    words = re.findall(r"\w+", name.partition("@")[0])
    return "".join(word[0] for word in [*words[:1], *words[1:][-1:]]).upper()


def cut(text: str, length: int = 64) -> str:
    """`text` in at most `length` characters; longer text is shortened in the middle.

    Both ends of a CI subject are informative: the repository in front, the branch at the end.
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


def grouped(number: int) -> str:
    """`number` with separators between thousands."""
    return f"{number:,}"
