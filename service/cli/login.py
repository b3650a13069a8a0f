"""`countersign login`, `logout`, `whoami` and `auth`: who works where."""

import asyncio
import sys
from dataclasses import replace
from typing import Any, Final

import click

from service.cli.client import expected_answers
from service.cli.commands import CommandPlace, current_run, declare
from service.cli.logins import Login, changed_logins, credential_of, load_logins, logins_path
from service.cli.output import CommandResult, padded, printable
from service.cli.root import root
from service.cli.sign_in import by_browser, end_session, of_org, stored_login, user_of, whose
from service.cli.target import Remote, parse_server
from service.core.settings import load_settings

_TOKEN_CHARS_MAX: Final = 8192
_LABEL_WIDTH: Final = 14


@root.group("auth")
def auth() -> None:
    """What commands work on, and as whom."""


@declare(root, "login", place=CommandPlace.SERVER, changes=True)
@declare(auth, "login", place=CommandPlace.SERVER, changes=True)
@click.argument("url", metavar="URL")
@click.option(
    "--with-token", is_flag=True, help="Read an API key or the admin token from standard input."
)
@click.option(
    "--insecure", "is_insecure", is_flag=True, help="Allow http:// to another machine; remembered."
)
def login(url: str, *, with_token: bool, is_insecure: bool) -> CommandResult:
    """Sign in to the server at URL: commands then work there.

    Shows a code to enter in your browser, where you are signed in or sign in then. The session is
    listed on your profile page and ends like any other. With --with-token, a secret is read from
    standard input instead.
    """
    server = parse_server(url, is_insecure=is_insecure)
    with expected_answers(server):
        if with_token:
            credential = credential_of(_read_token())
            who = asyncio.run(whose(server, credential))
        else:
            credential, who = asyncio.run(by_browser(server))
        stored = Login(server, credential, who["org"], user_of(who), is_insecure)
    with changed_logins() as held:
        former = held[0].by_server.get(server)
        if former is not None and (former.user, former.org) == (stored.user, stored.org):
            stored = replace(stored, machine=former.machine)
        held[0] = held[0].with_login(stored)
    line = f"Signed in to {server} as {user_of(who)}{of_org(who)}. Commands now work there."
    return CommandResult({"server": server, **who}, [line])


@declare(root, "logout", place=CommandPlace.SERVER, changes=True)
@declare(auth, "logout", place=CommandPlace.SERVER, changes=True)
@click.argument("url", metavar="[URL]", required=False)
def logout(url: str | None) -> CommandResult:
    """Sign out of the server in use, or of URL.

    Ends the session there, and forgets the login here.
    """
    stored = stored_login(url)
    note = None
    if stored.credential.kind == "session":
        note = asyncio.run(end_session(stored))
    with changed_logins() as held:
        held[0] = held[0].without(stored.server)
    lines = [f"Signed out of {stored.server}."]
    if note is not None:
        click.echo(f"countersign: {note}", err=True)
    is_ended = stored.credential.kind == "session" and note is None
    return CommandResult({"server": stored.server, "session_ended": is_ended}, lines)


@declare(root, "whoami", place=CommandPlace.EITHER)
@declare(auth, "status", place=CommandPlace.EITHER)
def status() -> CommandResult:
    """Show what commands work on, why, and as whom.

    Exit code 1 means that the server does not accept the login.
    """
    target, logins = current_run().target, sorted(load_logins().by_server)
    if isinstance(target, Remote):
        with expected_answers(target.server):
            who = asyncio.run(whose(target.server, target.credential))
        place = {"target": "server", "server": target.server, "why": target.why, **who}
    else:
        why = "--local" if target is None else target.why
        place = {"target": "data_dir", "path": str(load_settings().data_dir), "why": why}
    data = place | {"logins": logins}
    return CommandResult(data, _status_lines(data))


@declare(auth, "switch", place=CommandPlace.SERVER, changes=True)
@click.argument("url", metavar="URL")
def switch(url: str) -> CommandResult:
    """Work on the server at URL, to which you have signed in before."""
    stored = stored_login(url)
    with changed_logins() as held:
        held[0] = held[0].with_login(stored)
    data = {"server": stored.server, "user": stored.user, "org": stored.org}
    return CommandResult(data, [f"Commands now work on {stored.server}."])


def _read_token() -> str:
    if sys.stdin.isatty():
        token: str = click.prompt("Token", hide_input=True, err=True)
        return token
    return sys.stdin.read(_TOKEN_CHARS_MAX)


def _status_lines(data: dict[str, Any]) -> list[str]:
    place = data.get("server") or f"data dir {data['path']}"
    shown = {"works on": place, "because of": data["why"]}
    if "actor" in data:
        shown |= {
            "signed in as": user_of(data),
            "organisation": data["org"] or "all",
            "may": ", ".join(data["capabilities"]) or "nothing",
        }
        if data.get("expires_at"):
            shown["ends at"] = f"{data['expires_at']}, if it is not used again"
    if data["logins"]:
        shown["logins"] = ", ".join(data["logins"])
        shown["stored in"] = str(logins_path())
    return [f"{padded(name, _LABEL_WIDTH)}{printable(text)}" for name, text in shown.items()]
