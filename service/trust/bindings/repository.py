"""Queries on bindings. Nothing in this module commits."""

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, cast

from sqlalchemy import (
    ColumnElement,
    Integer,
    Table,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value

from service.ci.verifier.candidates import BindingTerms, candidates_of
from service.store.batching import rows_of, scalars_of
from service.store.tables import Binding, Organisation, Origin, Project, Team
from service.trust.bindings.rules import BindingSlot, Draft, ProjectsAndTeams, slot_key
from service.trust.refusals import NO_SUCH_BINDING, BindingNotFound

REVOKED: Final = "revoked"
NEWEST_FIRST: Final = (Binding.added_at.desc(), Binding.id)
NO_ENVELOPE: Final = "no active org_admin binding has its issuer, sub_pattern and repository_id"
OTHER_PROJECT: Final = "the org_admin binding that it lies within is limited to another project"

# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_BUMP: Final = (
    update(cast("Table", Organisation.__table__))
    .where(Organisation.id == bindparam("tenant_id"))
    .values(trust_revision=Organisation.trust_revision + 1)
)
_IS_TAKEN: Final = exists().where(Binding.slot == bindparam("slot"), Binding.revoked_at.is_(None))
# Only the column of `active_by_tenant`, so that no row of the table is read for the count.
_COUNTED: Final = (
    select(Binding.tenant_id)
    .where(Binding.tenant_id == bindparam("tenant_id"), Binding.revoked_at.is_(None))
    .limit(bindparam("limit", type_=Integer))
)
_OCCUPANCY: Final = select(
    _IS_TAKEN, select(func.count()).select_from(_COUNTED.subquery()).scalar_subquery()
)


class BindingState(StrEnum):
    """A binding is active until it is revoked, which is permanent."""

    ACTIVE = "active"
    REVOKED = "revoked"


async def find_projects_and_teams(
    session: AsyncSession, tenant_id: str, *names: object
) -> ProjectsAndTeams:
    """The project ids and the team ids of the organisation among `names`."""
    # All ids are ASCII. A database may fail on other text, such as a lone surrogate.
    ids = [name for name in names if isinstance(name, str) and name.isascii()]
    if not ids:
        return ProjectsAndTeams(projects=frozenset(), teams=frozenset())
    projects = select(Project.id).where(Project.tenant_id == tenant_id, Project.id.in_(ids))
    teams = select(Team.id).where(Team.tenant_id == tenant_id, Team.id.in_(ids))
    return ProjectsAndTeams(
        projects=frozenset(await session.scalars(projects)),
        teams=frozenset(await session.scalars(teams)),
    )


async def find_active(session: AsyncSession, slot: str) -> Binding | None:
    """The active binding in `slot`, or None; at most one exists (`one_active_per_slot`)."""
    return await session.scalar(
        select(Binding).where(Binding.slot == slot, Binding.revoked_at.is_(None))
    )


async def count_active_by_project(
    session: AsyncSession, tenant_id: str, projects: Collection[str]
) -> dict[str | None, int]:
    """The number of active bindings that are limited to those of `projects` that have any."""
    counts = await session.execute(
        select(Binding.project_id, func.count())
        .where(
            Binding.tenant_id == tenant_id,
            Binding.revoked_at.is_(None),
            Binding.project_id.in_(projects),
        )
        .group_by(Binding.project_id)
    )
    return {row[0]: row[1] for row in counts}


async def find_occupancy(
    session: AsyncSession, tenant_id: str, slot: str, limit: int
) -> tuple[bool, int]:
    """Whether `slot` is taken, and how many active bindings there are: `limit` for more, too."""
    asked = {"slot": slot, "tenant_id": tenant_id, "limit": limit}
    is_taken, active = (await session.execute(_OCCUPANCY, asked)).one()
    return is_taken, active


async def list_active_with_subs(
    session: AsyncSession, tenant_id: str, subs: Collection[str]
) -> Sequence[Binding]:
    """The organisation's active bindings with one of these subjects."""
    active = select(Binding).where(Binding.tenant_id == tenant_id, Binding.revoked_at.is_(None))
    return [
        binding async for binding in scalars_of(session, active, Binding.sub_pattern, list(subs))
    ]


async def list_ineffective(
    session: AsyncSession, tenant_id: str, bindings: Sequence[Binding]
) -> dict[str, str]:
    """Why each of the organisation's `bindings` that matches no token now matches none, by id.

    Only a team's binding can be active and match none: it depends on its envelope.
    """
    reasons = {each.id: REVOKED for each in bindings if each.revoked_at is not None}
    of_teams = [each for each in bindings if each.team_id is not None and each.id not in reasons]
    if not of_teams:
        return reasons
    subs = {binding.sub_pattern for binding in of_teams}
    active = await list_active_with_subs(session, tenant_id, subs)
    by_subject = candidates_of(active).by_subject
    effective = {candidate.id for group in by_subject.values() for candidate in group}
    enveloped = {_triple(each) for each in active if each.origin == Origin.ORG_ADMIN}
    return reasons | {
        binding.id: OTHER_PROJECT if _triple(binding) in enveloped else NO_ENVELOPE
        for binding in of_teams
        if binding.id not in effective
    }


def _triple(binding: Binding) -> tuple[str, str, str | None]:
    return binding.issuer, binding.sub_pattern, binding.repository_id


async def list_active_slots(session: AsyncSession, slots: Sequence[str]) -> dict[str, str]:
    """The occupied slots among `slots`, each with the organisation that holds it."""
    taken = select(Binding).where(Binding.revoked_at.is_(None))
    return {
        binding.slot: binding.tenant_id
        async for binding in scalars_of(session, taken, Binding.slot, slots)
    }


async def find_envelope(
    session: AsyncSession, tenant_id: str, draft: Draft, slot_rule: BindingSlot
) -> Binding | None:
    """The organisation-level active binding that a team's `draft` must stay within, or None."""
    org_level = replace(draft, team_id=None)  # the slot has no other part of it
    binding = await find_active(session, slot_key(org_level, tenant_id, slot_rule))
    # With one slot for the whole service, the slot's binding may be another organisation's.
    if binding is None or binding.tenant_id != tenant_id or binding.origin != Origin.ORG_ADMIN:
        return None
    return binding


async def find_binding(session: AsyncSession, tenant_id: str, binding_id: str) -> Binding | None:
    """The organisation's binding with this id, active or revoked, or None."""
    return await session.scalar(
        select(Binding).where(Binding.id == binding_id, Binding.tenant_id == tenant_id)
    )


async def get_binding(session: AsyncSession, tenant_id: str, binding_id: str) -> Binding:
    """The organisation's binding with this id, active or revoked. Raises NO_SUCH_BINDING."""
    binding = await find_binding(session, tenant_id, binding_id)
    if binding is None:
        raise NO_SUCH_BINDING
    return binding


async def get_active(session: AsyncSession, tenant_id: str, binding_id: str) -> Binding:
    """The organisation's active binding with this id. Raises BindingNotFound."""
    binding = await find_binding(session, tenant_id, binding_id)
    if binding is None or binding.revoked_at is not None:
        raise BindingNotFound
    return binding


async def mark_revoked(
    session: AsyncSession, bindings: Sequence[Binding], by: str, reason: str | None, now: datetime
) -> bool:
    """Revoke `bindings`; False, with some of them revoked, if one was no longer active."""
    values = {"revoked_at": now, "revoked_by": by, "revoked_reason": reason}
    revoke = (
        update(Binding)
        # Permanent: a second revocation must not replace the time and reason of the first one.
        .where(Binding.revoked_at.is_(None))
        .values(**values)
        .returning(Binding.id)
        # Synchronising would compare every binding of the session with each statement.
        .execution_options(synchronize_session=False)
    )
    binding_ids = [binding.id for binding in bindings]
    revoked = {each async for each in scalars_of(session, revoke, Binding.id, binding_ids)}
    for binding in bindings:
        for name, value in values.items():
            set_committed_value(binding, name, value)
    return revoked == set(binding_ids)


async def bump_trust_revision(session: AsyncSession, tenant_id: str) -> None:
    """Advance the trust revision: caches of the organisation's bindings become stale.

    Must be in the transaction of the change, so that the new revision implies the change. An
    organisation that the session has loaded keeps the former revision.
    """
    await session.execute(_BUMP, {"tenant_id": tenant_id})


async def list_active(session: AsyncSession, tenant_id: str) -> Sequence[BindingTerms]:
    """The columns of the organisation's active bindings that tokens are matched against."""
    terms = [getattr(Binding, field.name) for field in fields(BindingTerms)]
    active = select(*terms).where(Binding.tenant_id == tenant_id, Binding.revoked_at.is_(None))
    return await rows_of(session, active, BindingTerms)


async def count_by_state(session: AsyncSession, tenant_id: str) -> dict[str, int]:
    """The number of the organisation's bindings that are active, unused (and active), revoked."""
    is_active = Binding.revoked_at.is_(None)
    counts = select(
        func.count().filter(is_active),
        func.count().filter(is_active, Binding.last_used_at.is_(None)),
        func.count().filter(Binding.revoked_at.is_not(None)),
    ).where(Binding.tenant_id == tenant_id)
    active, unused, revoked = (await session.execute(counts)).one()
    return {"": active + revoked, "unused": unused, "active": active, "revoked": revoked}


async def list_active_bindings(
    session: AsyncSession, tenant_id: str, *further: ColumnElement[bool]
) -> Sequence[Binding]:
    """The organisation's active bindings that meet the `further` conditions, newest first."""
    active = select(Binding).where(Binding.tenant_id == tenant_id, Binding.revoked_at.is_(None))
    return (await session.scalars(active.where(*further).order_by(*NEWEST_FIRST))).all()


async def list_by_repository(
    session: AsyncSession,
    repository_id: str,
    state: BindingState = BindingState.ACTIVE,
    as_of: datetime | None = None,
) -> Sequence[Binding]:
    """The repository's bindings in all organisations that are (at `as_of`: were) in `state`."""
    query = select(Binding).where(Binding.repository_id == repository_id, in_state(state, as_of))
    return (await session.scalars(query.order_by(*NEWEST_FIRST))).all()


def in_state(state: BindingState | None, as_of: datetime | None) -> ColumnElement[bool]:
    """Condition: bindings in `state` (default all), or in it (default active) at `as_of`."""
    if as_of is None:
        match state:
            case BindingState.ACTIVE:
                return Binding.revoked_at.is_(None)
            case BindingState.REVOKED:
                return Binding.revoked_at.is_not(None)
            case _:
                return true()
    # Half-open: a binding and its replacement, from the same instant on, are never both active.
    if state is BindingState.REVOKED:
        return Binding.revoked_at <= as_of
    return and_(
        Binding.added_at <= as_of, or_(Binding.revoked_at.is_(None), Binding.revoked_at > as_of)
    )
