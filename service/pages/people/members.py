"""The members page: the organisation's members, and actions to manage them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from quart import url_for
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller, MemberPrincipal, member_actor
from service.access.passkeys.changes import remove_all_passkeys
from service.access.passkeys.repository import count_passkeys
from service.access.roles import Role
from service.access.sessions import LINK_LIFETIME, find_last_seen
from service.orgs.changes import add_member, end_sessions, issue_sign_in, remove_member, set_role
from service.orgs.domains import list_domains
from service.pages.labels import PROVIDER_WORDS
from service.pages.people.form_actions import Change
from service.pages.people.page import PLACE, IssuedSecret, OrgPage, may_decide_over
from service.pages.services import DashboardServices
from service.store.organisations import list_members_from, list_team_offices
from service.store.tables import Member, Organisation


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member. `teams` are the names of the teams they administer."""

    member: Member
    provider: str
    is_linked: bool
    passkeys: int
    last_seen_at: datetime | None
    teams: list[str]
    is_self: bool
    may_change: bool

    @property
    def actor(self) -> str:
        """The member's name in `actor` of audit rows."""
        return member_actor(self.member.identity_provider, self.member.id)


async def load_members_view(
    services: DashboardServices, session: AsyncSession, caller: Caller, org: Organisation
) -> dict[str, Any]:
    """A part of the members, and the domains that need no invitation."""
    part = await MEMBERS.part(partial(list_members_from, session, org), lambda each: each.email)
    providers = services.sign_in.providers
    return {
        "part": part,
        "rows": await _rows(session, caller, org, part.rows),
        "roles": [(role, role) for role in Role if may_decide_over(caller, role, org)],
        "providers": [
            (name, words if name in providers else f"{words} (not set up here)")
            for name, words in PROVIDER_WORDS.items()
        ],
        "sign_in_address": services.settings.public_url + url_for("sign_in.ways"),
        "domains": await list_domains(session, org),
        "provider_words": PROVIDER_WORDS,
        "link_minutes": int(LINK_LIFETIME.total_seconds() // 60),
    }


async def _rows(
    session: AsyncSession, caller: Caller, org: Organisation, members: Sequence[Member]
) -> list[MemberRow]:
    is_shown = Member.id.in_([member.id for member in members])
    seen = await find_last_seen(session, [member.id for member in members])
    passkeys = await count_passkeys(session, org, is_shown)
    teams: dict[str, list[str]] = defaultdict(list)
    for team, member in await list_team_offices(session, org, is_shown):
        teams[member.id].append(team.name)
    own_id = caller.member_id if isinstance(caller, MemberPrincipal) else None
    return [
        MemberRow(
            member=member,
            provider=PROVIDER_WORDS.get(member.identity_provider, member.identity_provider),
            is_linked=member.identity_subject is not None,
            passkeys=passkeys.get(member.id, 0),
            last_seen_at=seen.get(member.id),
            teams=teams[member.id],
            is_self=member.id == own_id,
            may_change=may_decide_over(caller, member.role, org),
        )
        for member in members
    ]


async def invite(change: Change) -> str:
    """Add a member, whose account is linked at their first sign-in."""
    role = change.role(change.typed("role"))
    await add_member(
        change.work, change.org, change.typed("email"), role, change.typed("idp"), change.by
    )
    return "invited"


async def give_role(change: Change, member_id: str) -> str:
    """Change a member's role; neither the old nor the new one may exceed the caller's."""
    member = await change.member(member_id)
    await set_role(change.work, change.org, member, change.role(change.typed("role")), change.by)
    return "role"


async def remove(change: Change, member_id: str) -> str:
    """End a membership."""
    await remove_member(change.work, change.org, await change.member(member_id), change.by)
    return "removed"


async def sign_out(change: Change, member_id: str) -> str:
    """End all sessions of a member, and the sign-in links they have not used."""
    await end_sessions(change.work, change.org, await change.member(member_id), change.by)
    return "signed-out"


async def remove_passkeys(change: Change, member_id: str) -> str:
    """Remove all passkeys of a member."""
    await remove_all_passkeys(change.work, await change.member(member_id), change.by)
    return "no-passkeys"


async def issue_link(change: Change, member_id: str) -> IssuedSecret:
    """A one-time link that signs its holder in as the member, so it must be kept secret."""
    member = await change.member(member_id)
    token = await issue_sign_in(change.work, change.org, member, change.by)
    return IssuedSecret(member.email, f"{change.public_url}/sign-in?token={token}")


MEMBERS: Final = OrgPage(
    endpoint="dashboard_people.members_page",
    template="people/members.html",
    load=load_members_view,
    done={
        "invited": "Invited. No email was sent: tell them where and with which account to sign in.",
        "role": "The role was changed. If it allows more than before, they must sign in again.",
        "removed": "Removed. Their sessions and sign-in links have ended.",
        "no-passkeys": "Their passkeys were removed. Sessions that began with them stay active.",
        "signed-out": "Their sessions and sign-in links have ended.",
    },
    place=PLACE,
)
