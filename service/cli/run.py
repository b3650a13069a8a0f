"""`countersign run` and `machine`: members install through the proxy from their own machines."""

import asyncio
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from service.cli.client import (
    Client,
    JsonObject,
    ServerRefusal,
    drop_none,
    expected_answers,
    org_path,
)
from service.cli.commands import CommandPlace, api_command, declare, org_or_login
from service.cli.logins import Login, MachineLogin, changed_logins, one_at_a_time
from service.cli.output import CommandResult, Table
from service.cli.root import root
from service.cli.sign_in import stored_login
from service.cli.target import SERVER_VARIABLE, TOKEN_VARIABLE
from service.cli.wrapped_command import assignments, display_variables, run_wrapped, token_of
from service.core.errors import Invalid
from service.core.text_rules import NAME_MAX
from service.packages.clients import KEY_VARIABLE, ProxyAddress

LEFT_MIN: Final = timedelta(minutes=10)
"""How long a stored token must still work to be used: an install takes a while."""

_UNAUTHORIZED: Final = 401
_CONFLICT: Final = 409
_COLUMNS: Final = ("id", "name", "member", "created_at", "expires_at")


@declare(
    root,
    "run",
    place=CommandPlace.SERVER,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--server",
    metavar="URL",
    envvar=SERVER_VARIABLE,
    help="A server that you are signed in to; default: COUNTERSIGN_SERVER, or the one in use.",
)
@org_or_login
@click.option(
    "--dry-run", "is_dry", is_flag=True, help="Show what would be set and run; get no token."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(
    server: str | None, slug: str | None, command: tuple[str, ...], *, is_dry: bool
) -> CommandResult:
    """Run COMMAND on your machine with every package manager pointed at the proxy.

    Needs a login (`countersign login URL`) and the right packages:install. Sets a machine token in
    the environment of COMMAND alone: it can only install, ends within hours, is got anew when
    needed, and is listed on your profile page. Ends with the exit code of COMMAND.

    Example: countersign run -- pip install requests
    """
    login = stored_login(server)
    org = slug or login.org
    if login.credential.kind != "session" or org is None:
        raise Invalid(
            f"the login to {login.server} is no member's: run `countersign login {login.server}`"
        )
    address = ProxyAddress(login.server, org)
    if is_dry:
        return _plan(address, command)
    with expected_answers(login.server), one_at_a_time():
        token = asyncio.run(_machine_token(stored_login(login.server), org))
    # Neither belongs into the environment of an install script.
    secrets = (TOKEN_VARIABLE, KEY_VARIABLE)
    sys.exit(run_wrapped(os.environ, address, token, command, secrets=secrets))


def _plan(address: ProxyAddress, command: Sequence[str]) -> CommandResult:
    data = {
        "server": address.server,
        "org": address.org,
        "environment": display_variables(address),
        "command": list(command),
    }
    lines = [
        f"Would run with a machine token of {address.org} at {address.server}",
        *(f"  {line}" for line in assignments(address)),
        f"  {shlex.join(command)}",
    ]
    return CommandResult(data, lines)


async def _machine_token(login: Login, org: str) -> str:
    """The stored machine token if the server still accepts it, otherwise a new one, then stored.

    One that ends soon is used while no other can be had. Raises ServerRefusal, and ValueError or
    KeyError for an answer of another form.
    """
    known = login.machine
    if known is not None and (known.org != org or _left(known.expires_at) <= timedelta()):
        known = None
    async with Client(login.server, login.credential) as client:
        try:
            is_fresh = known is not None and _left(known.expires_at) >= LEFT_MIN
            if known is not None and is_fresh and await _is_live(client, known):
                return known.token
            return await _new_token(client, login, org)
        except ServerRefusal as refusal:
            # The session has ended, or there is no room for another one.
            if known is None or refusal.answered_status not in {_UNAUTHORIZED, _CONFLICT}:
                raise
            return known.token


async def _new_token(client: Client, login: Login, org: str) -> str:
    """A new machine token, stored beside the login."""
    issued = await client.post(org_path(org, "machine-tokens"), {"name": _machine_name()})
    expires_at = str(issued["expires_at"])
    _left(expires_at)  # before it is stored, where each later run would stumble over it
    machine = MachineLogin(org, str(issued["id"]), expires_at, token_of(issued))
    with changed_logins() as held:
        stored = held[0].by_server.get(login.server)
        # Unless the login has ended meanwhile, or is another member's by now.
        if stored is not None and stored.credential == login.credential:
            by_server = {**held[0].by_server, login.server: replace(stored, machine=machine)}
            held[0] = replace(held[0], by_server=by_server)
    return machine.token


def _left(expires_at: str) -> timedelta:
    """How long a token still works. Raises ValueError."""
    at = datetime.fromisoformat(expires_at)
    if at.tzinfo is None:
        raise ValueError("expires_at")
    return at - datetime.now(UTC)


async def _is_live(client: Client, known: MachineLogin) -> bool:
    """Whether the token is among the live ones: it may have been revoked."""
    answer = await client.get(org_path(known.org, "machine-tokens"), {"own": "true"})
    return any(token["id"] == known.id for token in answer["machine_tokens"])


def _machine_name() -> str:
    """The host's name, as a token may be named."""
    name = "".join(c for c in platform.node() if c.isprintable()).strip()
    return name[:NAME_MAX] or "unnamed machine"


@root.group("machine")
def machine() -> None:
    """Machine tokens: what members install with from their own machines."""


@api_command(machine, "list")
async def machine_list(client: Client, slug: str) -> CommandResult:
    """List live machine tokens: your own, or those of all members with org:admin."""
    answer = await client.get(org_path(slug, "machine-tokens"))
    tokens = answer["machine_tokens"]
    table = Table.of(f"Machine tokens of {slug}", tokens, _COLUMNS, _COLUMNS[3:])
    return CommandResult({"machine_tokens": tokens}, table=table)


@api_command(machine, "issue", changes=True)
@click.option("--name", required=True, help="The machine's name.")
@click.option("--member", metavar="MEMBER", help="Whose it is (id or address); default: you.")
async def machine_issue(client: Client, slug: str, name: str, member: str | None) -> CommandResult:
    """Issue a machine token; its value is shown only once. `run` does this by itself."""
    body = drop_none(name=name, member=member)
    token: JsonObject = await client.post(org_path(slug, "machine-tokens"), body)
    line = (
        f"Machine token {token['id']} of {token['member']} ({token['name']}, expires"
        f" {token['expires_at']}). Its value, shown only once:"
    )
    return CommandResult(token, [line, token["token"]])


@api_command(machine, "revoke", changes=True)
@click.argument("machine_token_id", metavar="TOKEN_ID")
async def machine_revoke(client: Client, slug: str, machine_token_id: str) -> CommandResult:
    """Revoke a machine token: the next request with it is refused."""
    answer = await client.delete(org_path(slug, "machine-tokens", machine_token_id))
    return CommandResult(answer, [f"Revoked machine token {machine_token_id}."])
