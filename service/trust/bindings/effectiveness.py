"""Finds out why a binding matches no tokens, if it does not."""

from sqlalchemy.ext.asyncio import AsyncSession

from service.ci.verifier.candidates import candidates_of
from service.store.tables import Binding, Origin
from service.trust.bindings.repository import list_active_with_subs

REVOKED = "revoked"
NO_ENVELOPE = "no active org_admin binding has its issuer, sub_pattern and repository_id"
OTHER_PROJECT = "the org_admin binding that it lies within is limited to another project"


async def find_ineffective_reason(session: AsyncSession, binding: Binding) -> str | None:
    """Why `binding` matches no token now, or None if it is effective.

    Only a team's binding can be active and match none: it depends on its envelope.
    """
    if binding.revoked_at is not None:
        return REVOKED
    if binding.team_id is None:
        return None
    same_sub = await list_active_with_subs(session, binding.tenant_id, {binding.sub_pattern})
    triple = _triple(binding)
    same = [other for other in same_sub if _triple(other) == triple]
    matching = candidates_of(same).by_subject.values()
    if any(candidate.id == binding.id for candidates in matching for candidate in candidates):
        return None
    has_envelope = any(other.origin == Origin.ORG_ADMIN for other in same)
    return OTHER_PROJECT if has_envelope else NO_ENVELOPE


def _triple(binding: Binding) -> tuple[str, str, str | None]:
    return binding.issuer, binding.sub_pattern, binding.repository_id
