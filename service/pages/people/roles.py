"""The roles page: capabilities of each role, by default and granted by the organisation."""

from typing import Any, Final

from quart import Blueprint

from analytics.model.retention import RETENTION_DAYS, Tier
from service.access.callers import Caller
from service.access.roles import ROLE_DEFAULTS, Capability, Role, granted
from service.orgs.roles import grant, granted_beyond
from service.pages.navigation import may, may_decide_over
from service.pages.page import Form, Page, PageCall, View
from service.store.tables import Organisation

blueprint = Blueprint("dashboard_roles", __name__, url_prefix="/admin/ui/orgs/<slug>/roles")

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


@Page(
    blueprint,
    "",
    "people/roles.html",
    needs=Capability.ORG_ADMIN,
    done={"granted": "Saved. The change applies from the next request."},
)
async def roles_page(call: PageCall) -> View:
    """Roles and their capabilities, and the retention, which members cannot change."""
    return {
        "rows": [_row(role, call.caller, call.org) for role in Role],
        "capabilities": CAPABILITY_WORDS,
        "kept_days": RETENTION_DAYS[Tier(call.org.tier)],
    }


def _row(role: Role, caller: Caller, org: Organisation) -> View:
    """One role: whether it has each capability, by default or granted, and what may be changed."""
    now = granted(role, org.role_overrides)
    may_change = may_decide_over(caller, role, org) and ROLE_DEFAULTS[role] < set(Capability)
    cells = [
        {
            "capability": capability,
            "is_default": capability in ROLE_DEFAULTS[role],
            "is_granted": capability in now,
            "may_change": may_change
            and capability not in ROLE_DEFAULTS[role]
            and may(caller, capability, org),
        }
        for capability in Capability
    ]
    # The form sends the grants beyond the defaults back.
    before = " ".join(granted_beyond(role, org))
    return {"role": role, "cells": cells, "before": before, "may_change": may_change}


def _ticked(form: Form) -> dict[str, Any]:
    return {
        "capabilities": form.getlist("capability"),
        "before": form.get("before", "").split(),
    }


roles_page.form("/<role>", "grant", grant, "granted", fields=_ticked)
