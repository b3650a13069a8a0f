"""Bindings as the pages show them: with names for ids, and with what is odd about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from service.bindings.repository import list_active_with_subs
from service.dashboard.display_names import Names, Person, find_names
from service.store.tables import Binding
from service.verifier.candidates import candidates_of

IDLE_AFTER: Final = timedelta(days=1)
"""A binding that nobody has used by then may be a mistake, or trust that nobody needs."""


@dataclass(frozen=True, slots=True)
class ShownBinding:
    """One binding. `is_active` is of the instant asked about, the warnings are of now.

    `is_orphan` is a team's whose envelope is gone: it is active, and no token matches it.
    """

    binding: Binding
    added_by: Person
    revoked_by: Person | None
    team: str | None
    project: str | None
    is_active: bool
    is_idle: bool
    is_orphan: bool


async def show_bindings(
    session: AsyncSession,
    tenant_id: str,
    bindings: Sequence[Binding],
    now: datetime,
    as_of: datetime | None = None,
) -> list[ShownBinding]:
    """The organisation's `bindings` in their order, as they were at `as_of` or are now."""
    names = await find_names(
        session,
        tenant_id,
        actors={actor for one in bindings for actor in (one.added_by, one.revoked_by) if actor},
        teams={one.team_id for one in bindings if one.team_id},
        projects={one.project_id for one in bindings if one.project_id},
    )
    orphans = await _orphans(session, tenant_id, bindings)
    return [_shown(one, names, orphans, now, as_of) for one in bindings]


def _shown(
    binding: Binding, names: Names, orphans: set[str], now: datetime, as_of: datetime | None
) -> ShownBinding:
    team_id, project_id = binding.team_id, binding.project_id
    is_old = now - binding.added_at > IDLE_AFTER
    return ShownBinding(
        binding=binding,
        added_by=names.person(binding.added_by),
        revoked_by=names.person(binding.revoked_by) if binding.revoked_by else None,
        team=names.teams.get(team_id, team_id) if team_id else None,
        project=names.projects.get(project_id, project_id) if project_id else None,
        is_active=binding.revoked_at is None or (as_of is not None and binding.revoked_at > as_of),
        is_idle=binding.revoked_at is None and binding.use_count == 0 and is_old,
        is_orphan=binding.id in orphans,
    )


async def _orphans(session: AsyncSession, tenant_id: str, bindings: Sequence[Binding]) -> set[str]:
    """Those of teams that are active and match nothing, because their envelope does not."""
    of_teams = [one for one in bindings if one.team_id is not None and one.revoked_at is None]
    if not of_teams:
        return set()
    subs = {one.sub_pattern for one in of_teams}
    active = await list_active_with_subs(session, tenant_id, subs)
    matching = candidates_of(active).by_subject.values()
    return {one.id for one in of_teams} - {one.id for some in matching for one in some}
