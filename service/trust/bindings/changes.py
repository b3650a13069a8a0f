"""Creating, replacing and revoking bindings; each binding that changes gets one audit row."""

from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy.exc import IntegrityError

from analytics.model.envelopes import OidcBindingCreated, OidcBindingRevoked
from service.access.callers import Caller, Operator
from service.ci.issuers.issuers import Issuers
from service.core.errors import ReasonInvalid
from service.core.ids import new_id
from service.core.text_rules import parse_reason
from service.store.store import UnitOfWork
from service.store.tables import Binding, Organisation, Origin
from service.trust.bindings import rules
from service.trust.bindings.repository import (
    bump_trust_revision,
    find_envelope,
    find_occupancy,
    find_projects_and_teams,
    get_active,
    mark_revoked,
)
from service.trust.bindings.rules import (
    HTTP_ORIGINS,
    TERMS,
    BindingSlot,
    Draft,
    parse_binding,
    slot_key,
)
from service.trust.bindings.slots import stored_slot_rule
from service.trust.refusals import (
    OUTSIDE_ENVELOPE,
    TOO_MANY_BINDINGS,
    BindingExists,
    BindingNotFound,
)

REASON: Final = "reason"
REPLACED_BY: Final = "replaced by "
"""How the `revokedReason` of a replaced binding begins; its successor's id follows."""


def origins_of(by: Caller) -> Container[str]:
    """The origins that a request by `by` may name: the platform's only by the platform itself."""
    return frozenset(Origin) if isinstance(by, Operator) and by.is_platform else HTTP_ORIGINS


async def add_binding(
    work: UnitOfWork,
    org: Organisation,
    body: Mapping[str, Any],
    by: Caller,
    issuers: Issuers,
    binding_id: str | None = None,
) -> Binding:
    """Create the binding in `body`, with a new id unless one is given.

    Raises Invalid, Forbidden, OUTSIDE_ENVELOPE, BindingExists, TOO_MANY_BINDINGS.
    """
    known = await find_projects_and_teams(
        work.session, org.id, body.get("project_id"), body.get("team_id")
    )
    draft = parse_binding(body, issuers, known, origins_of(by))
    by.require_binding_rights(org, draft.team_id)
    slot_rule = await stored_slot_rule(work.session)
    project_id = await _project_limit(work, org, draft, slot_rule)
    slot = slot_key(draft, org.id, slot_rule)
    is_taken, active = await find_occupancy(work.session, org.id, slot, rules.ACTIVE_MAX)
    if is_taken:
        raise BindingExists
    if active >= rules.ACTIVE_MAX:
        raise TOO_MANY_BINDINGS(limit=f"{rules.ACTIVE_MAX:,}")
    binding = Binding(
        id=binding_id or new_id("obind"),
        tenant_id=org.id,
        project_id=project_id,
        team_id=draft.team_id,
        slot=slot,
        issuer=draft.issuer,
        sub_pattern=draft.sub_pattern,
        repository_id=draft.repository_id,
        event_names=list(draft.event_names),
        conditions=dict(draft.conditions) or None,
        origin=draft.origin,
        added_by=by.audit_context.actor,
        added_at=_to_ms(work.now),
    )
    work.session.add(binding)
    try:
        await work.session.flush()
    except IntegrityError as error:  # a concurrent transaction took the slot
        raise BindingExists from error
    await bump_trust_revision(work.session, org.id)
    created = OidcBindingCreated(
        binding_id=binding.id, by_user_id=binding.added_by, **terms_of(binding)
    )
    work.record(org.id, created, by.audit_context, subject=binding.id)
    return binding


async def revoke_binding(
    work: UnitOfWork, org: Organisation, binding_id: str, reason: str | None, by: Caller
) -> None:
    """Revoke a binding permanently. Raises BindingNotFound, Forbidden."""
    binding = await get_active(work.session, org.id, binding_id)
    await revoke_bindings(work, org, [binding], reason, by)


async def replace_binding(
    work: UnitOfWork,
    org: Organisation,
    binding_id: str,
    body: Mapping[str, Any],
    by: Caller,
    issuers: Issuers,
) -> Binding:
    """Revoke the binding and create its successor; fields missing in `body` are copied.

    There is no gap: both changes become visible with the transaction, and `revoked_at` of one
    equals `added_at` of the other. `body` may also have the `reason` of the revocation. Raises
    BindingNotFound, ReasonInvalid, and what `add_binding` raises.
    """
    predecessor = await get_active(work.session, org.id, binding_id)
    reason = _reason(body.get(REASON))
    changed = {name: value for name, value in body.items() if name != REASON}
    successor = {**terms_of(predecessor), **changed}
    successor_id = new_id("obind")
    why = f"{REPLACED_BY}{successor_id}" + (f": {reason}" if reason else "")
    # Revoked first: the successor may have the same slot.
    await revoke_binding(work, org, binding_id, why, by)
    return await add_binding(work, org, successor, by, issuers, successor_id)


async def revoke_bindings(
    work: UnitOfWork,
    org: Organisation,
    bindings: Sequence[Binding],
    reason: str | None,
    by: Caller,
) -> None:
    """Revoke active bindings of `org` permanently. Raises BindingNotFound, Forbidden."""
    now, actor = _to_ms(work.now), by.audit_context.actor
    # All rights before the first change: either all of the bindings are revoked, or none.
    for binding in bindings:
        by.require_revoke_rights(org, binding.team_id)
    if not await mark_revoked(work.session, bindings, actor, reason, now):
        raise BindingNotFound
    for binding in bindings:
        work.record(
            org.id,
            OidcBindingRevoked(binding_id=binding.id, revoked_reason=reason, by_user_id=actor),
            by.audit_context,
            subject=binding.id,
        )
    await bump_trust_revision(work.session, org.id)


def terms_of(binding: Binding) -> dict[str, Any]:
    """The body of a create request for a binding with the terms of `binding`."""
    terms = {name: getattr(binding, name) for name in TERMS}
    if not binding.conditions:
        del terms["conditions"]
    return terms | {"event_names": list(binding.event_names)}


def _reason(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ReasonInvalid
    return parse_reason(value)


def _to_ms(instant: datetime) -> datetime:
    """Truncate to milliseconds, as in answers, so that an `addedAt` can be used as `asOf`."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


async def _project_limit(
    work: UnitOfWork, org: Organisation, draft: Draft, slot_rule: BindingSlot
) -> str | None:
    """The project that the binding is limited to; a team binding stays within its envelope.

    Raises OUTSIDE_ENVELOPE.
    """
    if draft.origin is not Origin.TEAM_ADMIN:
        return draft.project_id
    envelope = await find_envelope(work.session, org.id, draft, slot_rule)
    if envelope is None:
        raise OUTSIDE_ENVELOPE
    if envelope.project_id is None:
        return draft.project_id
    if draft.project_id not in {None, envelope.project_id}:
        raise OUTSIDE_ENVELOPE
    return envelope.project_id
