"""Actions that a page offers to its caller. Submitted forms are authorized again."""

from service.access.callers import Caller, is_allowed
from service.access.roles import Capability
from service.pages.navigation import may
from service.store.tables import Organisation


def may_create(caller: Caller, org: Organisation, team_id: str | None) -> bool:
    """Whether `caller` could create bindings of the team, or of the organisation (None)."""
    has_rights = is_allowed(caller.require_binding_rights, org, team_id)
    return has_rights and may(caller, Capability.OIDC_WRITE, org)


def may_revoke(caller: Caller, org: Organisation, team_id: str | None) -> bool:
    """Whether `caller` could revoke bindings of the team, or of the organisation (None)."""
    has_rights = is_allowed(caller.require_revoke_rights, org, team_id)
    return has_rights and may(caller, Capability.OIDC_WRITE, org)
