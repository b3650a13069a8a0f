"""Bindings as the pages show them: names for ids, warnings, and what the caller may do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller, is_allowed
from service.access.roles import Capability
from service.ci.providers import job_parts
from service.pages.display_names import NamedActor, Names, find_names
from service.pages.navigation import may
from service.store.tables import Binding, Organisation
from service.trust.bindings.repository import list_ineffective

IDLE_AFTER: Final = timedelta(days=1)
"""A binding still unused after this may be a mistake or unneeded."""


@dataclass(frozen=True, slots=True)
class ShownBinding:
    """One binding. `is_active` is as of the requested instant, the warnings are as of now.

    `ineffective_reason` is why it matches no token although it is active: a team's, then.
    """

    binding: Binding
    added_by: NamedActor
    revoked_by: NamedActor | None
    team: str | None
    project: str | None
    is_active: bool
    is_idle: bool
    ineffective_reason: str | None

    @property
    def parts(self) -> tuple[str, str]:
        """The repository and ref of its subject, empty if that has another form."""
        return job_parts(self.binding.sub_pattern) or ("", "")


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
        actors={actor for each in bindings for actor in (each.added_by, each.revoked_by) if actor},
        teams={binding.team_id for binding in bindings if binding.team_id},
        projects={binding.project_id for binding in bindings if binding.project_id},
    )
    reasons = await list_ineffective(session, tenant_id, bindings)
    return [_view(binding, names, reasons, now, as_of) for binding in bindings]


def _view(
    binding: Binding,
    names: Names,
    reasons: Mapping[str, str],
    now: datetime,
    as_of: datetime | None,
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
        ineffective_reason=reasons.get(binding.id) if binding.revoked_at is None else None,
    )


def may_create(caller: Caller, org: Organisation, team_id: str | None) -> bool:
    """Whether `caller` could create bindings of the team, or of the organisation (None)."""
    has_rights = is_allowed(caller.require_binding_rights, org, team_id)
    return has_rights and may(caller, Capability.OIDC_WRITE, org)


def may_revoke(caller: Caller, org: Organisation, team_id: str | None) -> bool:
    """Whether `caller` could revoke bindings of the team, or of the organisation (None)."""
    has_rights = is_allowed(caller.require_revoke_rights, org, team_id)
    return has_rights and may(caller, Capability.OIDC_WRITE, org)
