"""The page that jumps to any other: pages, actions, and lists of what was typed."""

from typing import Annotated, Final
from urllib.parse import urlencode

from msgspec import Meta
from quart import Blueprint, url_for

from service.access.roles import Capability
from service.pages.navigation import SECTIONS, Destination, may
from service.pages.page import Page, View
from service.pages.services import DashboardServices
from service.web.endpoint import Call
from service.web.models import Request

blueprint = Blueprint("dashboard_find", __name__, url_prefix="/admin/ui/orgs/<slug>")

ACTIONS: Final = (
    Destination("Add a binding", "dashboard_create_binding.new_page", Capability.OIDC_WRITE),
    Destination(
        "Revoke a repository", "dashboard_repository.repository_page", Capability.OIDC_WRITE
    ),
    Destination("Block a version", "dashboard_policy.policy_page", Capability.POLICY_WRITE),
    Destination("Export the audit log", "dashboard_exports.offer_page", Capability.AUDIT_EXPORT),
    Destination("Invite a member", "dashboard_members.members_page", Capability.ORG_ADMIN),
    Destination("Issue an API key", "dashboard_keys.keys_page", Capability.ORG_ADMIN),
)
_LISTS: Final = (
    ("q", Destination("Rows of the audit log", "dashboard.audit_page", Capability.AUDIT_READ)),
    (
        "name",
        Destination("The package", "dashboard_investigate.package_page", Capability.AUDIT_READ),
    ),
    ("find", Destination("Members", "dashboard_members.members_page", Capability.ORG_ADMIN)),
    ("find", Destination("API keys", "dashboard_keys.keys_page", Capability.ORG_ADMIN)),
)
"""Pages that show what was typed, with the parameter that takes it."""


class FindQuery(Request):
    """What was typed."""

    q: Annotated[str, Meta(max_length=256)] = ""


@Page(blueprint, "/find", "find.html", needs=None, query=FindQuery)
async def find_page(call: Call[DashboardServices], query: FindQuery) -> View:
    """Pages and actions that have each word of `q`, and lists of it: only what the caller may open.

    Nothing is looked up, so the answer does not show what exists.
    """
    text = " ".join(query.q.split())

    def allowed(where: Destination) -> bool:
        return where.capability is None or may(call.caller, where.capability, call.org)

    def named(places: list[tuple[str, Destination]]) -> list[tuple[str, str]]:
        return [
            (label, url_for(where.endpoint, slug=call.org.slug))
            for label, where in places
            if allowed(where) and all(word in label.casefold() for word in text.casefold().split())
        ]

    lists = [
        (
            where.label,
            f"{url_for(where.endpoint, slug=call.org.slug)}?{urlencode({parameter: text})}",
        )
        for parameter, where in _LISTS
        if text and allowed(where)
    ]
    pages = [
        (page.label if page.label == section else f"{section}: {page.label}", page)
        for section, own in SECTIONS.items()
        for page in own
    ]
    return {
        "text": text,
        "groups": {
            f"With “{text}”": lists,
            "Actions": named([(action.label, action) for action in ACTIONS]),
            "Pages": named(pages),
        },
    }
