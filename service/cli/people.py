"""`countersign member` and `session`."""

from typing import get_args

import click

from service.access.roles import Role
from service.access.sessions import LINK_LIFETIME
from service.cli.client import Client, drop_none, operator_path, org_path
from service.cli.commands import api_command
from service.cli.output import CommandResult, Table
from service.cli.root import root
from service.core.header_names import SESSION_COOKIE
from service.core.settings import IdentityProviderName

_ROLES = click.Choice([role.value for role in Role])


_MEMBER = click.option(
    "--member", "member_name", required=True, metavar="MEMBER", help="Id or email."
)


@root.group("member")
def member() -> None:
    """Members: the people of an organisation."""


@api_command(member, "add", changes=True)
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
async def member_add(client: Client, slug: str, email: str, role: str, idp: str) -> CommandResult:
    """Make EMAIL a member."""
    body = drop_none(email=email, role=role, idp=idp)
    added = await client.post(_path(slug), body)
    return CommandResult(
        {"id": added["id"], "email": email, "role": role, "idp": idp},
        [f"{email} is {role} of {slug}: {added['id']}"],
    )


_LISTED = ("id", "email", "role", "idp", "linked", "passkeys")


@api_command(member, "list")
async def member_list(client: Client, slug: str) -> CommandResult:
    """List the current members, and how they can sign in."""
    found = await client.all_pages(_path(slug), "members")
    rows = [{name: person[name] for name in _LISTED} for person in found]
    columns = ["email", "role", "idp", "linked", "passkeys", "id"]
    shown = [row | {"linked": "yes" if row["linked"] else "no"} for row in rows]
    title = f"Members of {slug}{client.at_place}"
    return CommandResult({"members": rows}, table=Table.of(title, shown, columns))


@api_command(member, "set-role", changes=True)
@click.argument("member_name", metavar="MEMBER")
@click.argument("role", type=_ROLES)
async def member_set_role(client: Client, slug: str, member_name: str, role: str) -> CommandResult:
    """Give MEMBER (id or email) another ROLE."""
    person = await client.post(
        await _path_of(client, slug, member_name, "role"), drop_none(role=role)
    )
    data = {"id": person["id"], "role": role}
    return CommandResult(data, [f"{person['email']} is {role} of {slug}."])


@api_command(member, "remove", changes=True)
@click.argument("member_name", metavar="MEMBER")
async def member_remove(client: Client, slug: str, member_name: str) -> CommandResult:
    """End the membership and sessions of MEMBER (id or email)."""
    person = await client.delete(await _path_of(client, slug, member_name))
    line = f"{person['email']} is no longer a member of {slug}."
    return CommandResult({"id": person["id"]}, [line])


@api_command(member, "remove-passkeys", changes=True)
@click.argument("member_name", metavar="MEMBER")
async def member_remove_passkeys(client: Client, slug: str, member_name: str) -> CommandResult:
    """Remove all passkeys of MEMBER (id or email).

    Their sessions stay active; end them with `session revoke`.
    """
    removed = await client.post(await _path_of(client, slug, member_name, "remove-passkeys"), b"")
    return CommandResult(removed, [f"Removed {removed['passkeys']} passkeys."])


@root.group("session")
def session() -> None:
    """Sessions: list and end them, and issue sign-in links."""


@api_command(session, "list")
@_MEMBER
async def session_list(client: Client, slug: str, member_name: str) -> CommandResult:
    """List a member's live sessions, most recently used first."""
    found = await client.get(await _path_of(client, slug, member_name, "sessions"))
    rows = found["sessions"]
    columns = ["id", "created_at", "last_seen_at", "ends_at", "source_ip", "user_agent"]
    table = Table.of(f"Sessions of {found['email']}", rows, columns, columns[1:4])
    return CommandResult({"sessions": rows}, table=table)


@api_command(session, "issue", changes=True)
@_MEMBER
@click.option(
    "--cookie", is_flag=True, help="Also start a session and print its cookie; the operator's."
)
async def session_issue(
    client: Client, slug: str, member_name: str, *, cookie: bool
) -> CommandResult:
    """Print a one-time sign-in link for a member.

    With --cookie, also print a session cookie for scripts.
    """
    value = None
    if cookie:
        part = await client.part_of(_path(slug), "members", member_name)
        path = operator_path(slug, "members", part, "sessions")
        value = (await client.post(path, b""))["cookie"]
    issued = await client.post(await _path_of(client, slug, member_name, "link"), b"")
    email, link = issued["email"], issued["link"]
    minutes = int(LINK_LIFETIME.total_seconds() // 60)
    lines = [f"Sign-in link for {email}, valid once within {minutes} minutes:", link]
    if value is not None:
        lines += ["Cookie for scripts:", f"{SESSION_COOKIE}={value}"]
    return CommandResult({"member": issued["member"], "link": link, "cookie": value}, lines)


@api_command(session, "revoke", changes=True)
@_MEMBER
async def session_revoke(client: Client, slug: str, member_name: str) -> CommandResult:
    """End all sessions of a member."""
    ended = await client.post(await _path_of(client, slug, member_name, "sign-out"), b"")
    return CommandResult(ended, [f"Ended {ended['sessions']} sessions."])


def _path(slug: str, *parts: str) -> str:
    return org_path(slug, "members", *parts)


async def _path_of(client: Client, slug: str, member_name: str, *parts: str) -> str:
    """The path of a member, by id or email, or of what is below it."""
    return _path(slug, await client.part_of(_path(slug), "members", member_name), *parts)
