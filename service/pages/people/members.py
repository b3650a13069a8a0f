"""The members page: the organisation's members, and actions to manage them."""

from collections.abc import Sequence
from functools import partial

from quart import Blueprint, url_for
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller, MemberPrincipal, member_actor
from service.access.roles import Capability, Role
from service.access.sessions import LINK_LIFETIME
from service.access.sign_in.providers import LABELS
from service.orgs.domains import list_domains
from service.orgs.members import (
    give_role,
    invite,
    issue_link,
    member_facts,
    remove,
    remove_passkeys,
    sign_out,
)
from service.pages.navigation import may_decide_over
from service.pages.page import IssuedSecret, Page, PageCall, View, list_part
from service.store.organisations import list_members_from
from service.store.tables import Member, Organisation

blueprint = Blueprint("dashboard_members", __name__, url_prefix="/admin/ui/orgs/<slug>/members")


@Page(
    blueprint,
    "",
    "people/members.html",
    needs=Capability.ORG_ADMIN,
    done={
        "invited": "Invited. No email was sent: tell them where and with which account to sign in.",
        "role": "The role was changed. If it allows more than before, they must sign in again.",
        "removed": "Removed. Their sessions and sign-in links have ended.",
        "no-passkeys": "Their passkeys were removed. Sessions that began with them stay active.",
        "signed-out": "Their sessions and sign-in links have ended.",
    },
    is_list=True,
)
async def members_page(call: PageCall) -> View:
    """A part of the members, and the domains that need no invitation."""
    caller, org, settings = call.caller, call.org, call.services.settings
    async with call.read() as session:
        part = await list_part(partial(list_members_from, session, org), lambda each: each.email)
        rows = await _rows(session, caller, org, part.rows)
        domains = await list_domains(session, org)
    providers = call.services.sign_in.providers
    return {
        "part": part,
        "rows": rows,
        "roles": [(role, role) for role in Role if may_decide_over(caller, role, org)],
        "providers": [
            (name, words if name in providers else f"{words} (not set up here)")
            for name, words in LABELS.items()
        ],
        "sign_in_address": settings.public_url + url_for("sign_in.ways"),
        "domains": domains,
        "provider_words": LABELS,
        "link_minutes": int(LINK_LIFETIME.total_seconds() // 60),
    }


async def _rows(
    session: AsyncSession, caller: Caller, org: Organisation, members: Sequence[Member]
) -> list[View]:
    """The members, each with their name in `actor` of audit rows, and what the caller may do."""
    own_id = caller.member_id if isinstance(caller, MemberPrincipal) else None
    return [
        {
            "facts": facts,
            "provider": LABELS.get(facts.member.identity_provider, facts.member.identity_provider),
            "actor": member_actor(facts.member.identity_provider, facts.member.id),
            "is_self": facts.member.id == own_id,
            "may_change": may_decide_over(caller, facts.member.role, org),
        }
        for facts in await member_facts(session, org, members)
    ]


members_page.form("", "invite", invite, "invited", field="email")
members_page.form("/<member_id>/role", "give_role", give_role, "role", field="role")
members_page.form("/<member_id>/remove", "remove_member", remove, "removed")
members_page.form("/<member_id>/sign-out", "sign_member_out", sign_out, "signed-out")
members_page.form("/<member_id>/remove-passkeys", "remove_passkeys", remove_passkeys, "no-passkeys")
members_page.secret_form(
    "/<member_id>/link",
    "issue_link",
    issue_link,
    lambda _, issued: IssuedSecret(issued.email, issued.link),
)
