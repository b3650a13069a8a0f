"""The roles page: capabilities of each role, by default and granted by the organisation."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.retention import RETENTION_DAYS, Tier
from service.access.callers import Caller
from service.access.roles import ROLE_DEFAULTS, Capability, Role, granted
from service.core.errors import OverrideMoved
from service.orgs.changes import set_role_override
from service.pages.navigation import may
from service.pages.people.form_actions import Change
from service.pages.people.page import OrgPage, may_decide_over
from service.pages.services import DashboardServices
from service.store.tables import Organisation

CAPABILITY_WORDS: Final[dict[Capability, str]] = {
    Capability.OIDC_READ: "see bindings and rejected subjects",
    Capability.OIDC_WRITE: "change bindings",
    Capability.AUDIT_READ: "read the audit log",
    Capability.AUDIT_EXPORT: "export the audit log",
    Capability.POLICY_READ: "see the install policy and the proxy",
    Capability.POLICY_WRITE: "change the install policy",
    Capability.ORG_ADMIN: "manage the organisation",
    Capability.PACKAGES_INSTALL: "issue keys that install packages",
    Capability.AUDIT_INGEST: "issue keys that send audit rows",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Whether a role has a capability, by default or granted, and if the caller may change it."""

    capability: Capability
    is_default: bool
    is_granted: bool
    may_change: bool


@dataclass(frozen=True, slots=True)
class RoleRow:
    """One role. `before` are its grants beyond the defaults, which the form sends back."""

    role: Role
    cells: list[Cell]
    before: str
    may_change: bool


async def load_roles_view(
    services: DashboardServices, session: AsyncSession, caller: Caller, org: Organisation
) -> dict[str, Any]:
    """Roles and their capabilities, and the retention, which members cannot change."""
    tier = Tier(org.tier)
    return {
        "rows": [_row(role, caller, org) for role in Role],
        "capabilities": CAPABILITY_WORDS,
        "kept_days": RETENTION_DAYS[tier],
    }


def _row(role: Role, caller: Caller, org: Organisation) -> RoleRow:
    now = granted(role, org.role_overrides)
    may_change = may_decide_over(caller, role, org) and ROLE_DEFAULTS[role] < set(Capability)
    cells = [
        Cell(
            capability,
            is_default=capability in ROLE_DEFAULTS[role],
            is_granted=capability in now,
            may_change=may_change
            and capability not in ROLE_DEFAULTS[role]
            and may(caller, capability, org),
        )
        for capability in Capability
    ]
    return RoleRow(role, cells, _before(role, org), may_change)


def _before(role: str, org: Organisation) -> str:
    return " ".join(sorted(org.role_overrides.get(role, ())))


async def grant(change: Change, role: str) -> str:
    """Set a role's grants beyond its defaults to those that are ticked.

    Raises Forbidden for a capability that the caller lacks, and OverrideMoved if the grants have
    changed since the page was shown: saving could restore one that was revoked concurrently.
    """
    chosen = change.form.getlist("capability")
    role = change.role(role)
    for name in set(chosen) & set(Capability):
        change.caller.require(Capability(name), change.org)
    # In the transaction of the change: the grants cannot change between this check and the write.
    if change.form.get("before") != _before(role, change.org):
        raise OverrideMoved
    await set_role_override(change.work, change.org, role, chosen, change.by)
    return "granted"


ROLES: Final = OrgPage(
    endpoint="dashboard_people.roles_page",
    template="people/roles.html",
    load=load_roles_view,
    done={"granted": "Saved. The change applies from the next request."},
)
