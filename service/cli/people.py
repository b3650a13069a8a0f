"""`countersign member` and `session`."""

from typing import get_args

import click

from analytics.model.instants import format_ms
from analytics.model.org_envelopes import IdentityProviderName
from service.access.passkeys.changes import remove_all_passkeys
from service.access.passkeys.repository import count_passkeys
from service.access.roles import Role
from service.access.sessions import LINK_LIFETIME, list_sessions
from service.cli.answers import Answer
from service.cli.context import CommandContext, command, org_option
from service.cli.root import root
from service.cli.tables import Table
from service.core.header_names import SESSION_COOKIE
from service.orgs.members import (
    add_member,
    end_sessions,
    issue_cookie,
    issue_sign_in,
    remove_member,
    set_role,
)
from service.store.organisations import (
    get_member,
    get_org,
    list_members,
)

_ROLES = click.Choice([role.value for role in Role])


@root.group("member")
def member() -> None:
    """Members: the people of an organisation."""


@command(member, "add", changes=True)
@org_option
@click.argument("email")
@click.option(
    "--role",
    type=_ROLES,
    default=Role.MEMBER.value,
    show_default=True,
    help="What they may do in the organisation.",
)
@click.option(
    "--idp",
    type=click.Choice(get_args(IdentityProviderName)),
    required=True,
    help="The identity provider the person signs in with.",
)
async def member_add(context: CommandContext, slug: str, email: str, role: str, idp: str) -> Answer:
    """Make EMAIL a member."""
    async with context.change(slug) as (work, org):
        added = await add_member(work, org, email, role, idp, context.audit_context)
    return Answer(
        {"id": added.id, "email": email, "role": role, "idp": idp},
        [f"{email} is {role} of {slug}: {added.id}"],
    )


@command(member, "list")
@org_option
async def member_list(context: CommandContext, slug: str) -> Answer:
    """List the current members, and how they can sign in."""
    async with context.services.store.read() as session:
        org = await get_org(session, slug)
        members = await list_members(session, org)
        passkeys = await count_passkeys(session, org)
    rows = [
        {
            "id": member.id,
            "email": member.email,
            "role": member.role,
            "idp": member.identity_provider,
            "linked": member.identity_subject is not None,
            "passkeys": passkeys.get(member.id, 0),
        }
        for member in members
    ]
    columns = ["email", "role", "idp", "linked", "passkeys", "id"]
    shown = [row | {"linked": "yes" if row["linked"] else "no"} for row in rows]
    return Answer({"members": rows}, table=Table.of(f"Members of {slug}", shown, columns))


@command(member, "set-role", changes=True)
@org_option
@click.argument("member_name", metavar="MEMBER")
@click.argument("role", type=_ROLES)
async def member_set_role(
    context: CommandContext, slug: str, member_name: str, role: str
) -> Answer:
    """Give MEMBER (id or email) another ROLE."""
    async with context.change(slug) as (work, org):
        person = await get_member(work.session, org, member_name)
        await set_role(work, org, person, role, context.audit_context)
    return Answer({"id": person.id, "role": role}, [f"{person.email} is {role} of {slug}."])


@command(member, "remove", changes=True)
@org_option
@click.argument("member_name", metavar="MEMBER")
async def member_remove(context: CommandContext, slug: str, member_name: str) -> Answer:
    """End the membership and sessions of MEMBER (id or email)."""
    async with context.change(slug) as (work, org):
        person = await get_member(work.session, org, member_name)
        await remove_member(work, org, person, context.audit_context)
    return Answer({"id": person.id}, [f"{person.email} is no longer a member of {slug}."])


@command(member, "remove-passkeys", changes=True)
@org_option
@click.argument("member_name", metavar="MEMBER")
async def member_remove_passkeys(context: CommandContext, slug: str, member_name: str) -> Answer:
    """Remove all passkeys of MEMBER (id or email).

    Their sessions stay active; end them with `session revoke`.
    """
    async with context.change(slug) as (work, org):
        person = await get_member(work.session, org, member_name)
        removed = await remove_all_passkeys(work, person, context.audit_context)
    return Answer({"member": person.id, "passkeys": removed}, [f"Removed {removed} passkeys."])


@root.group("session")
def session() -> None:
    """Sessions: list and end them, and issue sign-in links."""


@command(session, "list")
@org_option
@click.option("--member", "member_name", required=True, metavar="MEMBER", help="Id or email.")
async def session_list(context: CommandContext, slug: str, member_name: str) -> Answer:
    """List a member's live sessions, most recently used first."""
    services = context.services
    lifetimes = services.authenticator.lifetimes
    async with services.store.read() as database:
        org = await get_org(database, slug)
        person = await get_member(database, org, member_name)
        sessions = await list_sessions(database, person.id, lifetimes, services.clock())
    rows = [
        {
            "id": entry.id,
            "created_at": format_ms(entry.created_at),
            "last_seen_at": format_ms(entry.last_seen_at),
            "ends_at": format_ms(lifetimes.end_of(entry)),
            "source_ip": entry.source_ip,
            "user_agent": entry.user_agent,
        }
        for entry in sessions
    ]
    columns = ["id", "created_at", "last_seen_at", "ends_at", "source_ip", "user_agent"]
    table = Table.of(f"Sessions of {person.email}", rows, columns, columns[1:4])
    return Answer({"sessions": rows}, table=table)


@command(session, "issue", changes=True)
@org_option
@click.option("--member", "member_name", required=True, metavar="MEMBER", help="Id or email.")
@click.option("--cookie", is_flag=True, help="Also start a session and print its cookie.")
async def session_issue(
    context: CommandContext, slug: str, member_name: str, *, cookie: bool
) -> Answer:
    """Print a one-time sign-in link for a member.

    With --cookie, also print a session cookie for scripts.
    """
    async with context.change(slug) as (work, org):
        person = await get_member(work.session, org, member_name)
        token = await issue_sign_in(work, org, person, context.audit_context)
        value = await issue_cookie(work, org, person, context.audit_context) if cookie else None
    link = f"{context.services.settings.public_url}/sign-in?token={token}"
    minutes = int(LINK_LIFETIME.total_seconds() // 60)
    lines = [f"Sign-in link for {person.email}, valid once within {minutes} minutes:", link]
    if value is not None:
        lines += ["Cookie for scripts:", f"{SESSION_COOKIE}={value}"]
    return Answer({"member": person.id, "link": link, "cookie": value}, lines)


@command(session, "revoke", changes=True)
@org_option
@click.option("--member", "member_name", required=True, metavar="MEMBER", help="Id or email.")
async def session_revoke(context: CommandContext, slug: str, member_name: str) -> Answer:
    """End all sessions of a member."""
    async with context.change(slug) as (work, org):
        person = await get_member(work.session, org, member_name)
        ended = await end_sessions(work, org, person, context.audit_context)
    return Answer({"member": person.id, "sessions": ended}, [f"Ended {ended} sessions."])
