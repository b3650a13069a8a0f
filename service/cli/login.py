"""`countersign login`, `logout`, `whoami` and `auth`: who works where."""

import asyncio
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click

from service.cli.answers import Answer, one_line
from service.cli.commands import Place, current_run, declare
from service.cli.credentials import Credential, credential_of, session_credential
from service.cli.logins import Login, changed_logins, load_logins, logins_path
from service.cli.nearest import did_you_mean
from service.cli.proposals import printable
from service.cli.root import root
from service.cli.server_client import ServerClient
from service.cli.server_failures import ServerRefusal, expected_answers
from service.cli.tables import padded
from service.cli.target import Local, Remote, parse_server
from service.core.errors import Conflict, NotFound, Refusal
from service.core.settings import load_settings

SESSION_PATH: Final = "/api/v1/session"
_TOKEN_CHARS_MAX: Final = 8192
_LABEL_WIDTH: Final = 14
_ENDED_ALREADY: Final = 401


@root.group("auth")
def auth() -> None:
    """What commands work on, and as whom."""


@declare(root, "login", place=Place.SERVER, changes=True)
@declare(auth, "login", place=Place.SERVER, changes=True)
@click.argument("url", metavar="URL")
@click.option(
    "--with-token", is_flag=True, help="Read an API key or the admin token from standard input."
)
@click.option(
    "--insecure", "is_insecure", is_flag=True, help="Allow http:// to another machine; remembered."
)
def login(url: str, *, with_token: bool, is_insecure: bool) -> Answer:
    """Sign in to the server at URL: commands then work there.

    Shows a code to enter in your browser, where you are signed in or sign in then. The session is
    listed on your profile page and ends like any other. With --with-token, a secret is read from
    standard input instead.
    """
    server = parse_server(url, is_insecure=is_insecure)
    with expected_answers(server):
        if with_token:
            credential = credential_of(_read_token())
            who = asyncio.run(_who(server, credential))
        else:
            credential, who = asyncio.run(_by_browser(server))
        stored = Login(server, credential, who["org"], _user(who), is_insecure)
    with changed_logins() as held:
        held[0] = held[0].with_login(stored)
    line = f"Signed in to {server} as {_user(who)}{_of_org(who)}. Commands now work there."
    return Answer({"server": server, **who}, [line])


@declare(root, "logout", place=Place.SERVER, changes=True)
@declare(auth, "logout", place=Place.SERVER, changes=True)
@click.argument("url", metavar="[URL]", required=False)
def logout(url: str | None) -> Answer:
    """Sign out of the server in use, or of URL.

    Ends the session there, and forgets the login here.
    """
    stored = _stored_login(url)
    note = None
    if stored.credential.kind == "session":
        note = asyncio.run(_end_session(stored))
    with changed_logins() as held:
        held[0] = held[0].without(stored.server)
    lines = [f"Signed out of {stored.server}."]
    if note is not None:
        click.echo(f"countersign: {note}", err=True)
    is_ended = stored.credential.kind == "session" and note is None
    return Answer({"server": stored.server, "session_ended": is_ended}, lines)


@declare(root, "whoami", place=Place.EITHER)
@declare(auth, "status", place=Place.EITHER)
def status() -> Answer:
    """Show what commands work on, why, and as whom.

    Exit code 1 means that the server does not accept the login.
    """
    target = current_run().target
    if isinstance(target, Remote):
        with expected_answers(target.server):
            data = _server_status(target)
    else:
        data = _local_status(target or Local("--local"))
    return Answer(data, _status_lines(data))


@declare(auth, "switch", place=Place.SERVER, changes=True)
@click.argument("url", metavar="URL")
def switch(url: str) -> Answer:
    """Work on the server at URL, to which you have signed in before."""
    stored = _stored_login(url)
    with changed_logins() as held:
        held[0] = held[0].with_login(stored)
    data = {"server": stored.server, "user": stored.user, "org": stored.org}
    return Answer(data, [f"Commands now work on {stored.server}."])


async def _by_browser(server: str) -> tuple[Credential, dict[str, Any]]:
    async with ServerClient(server, None) as client:
        token = await sign_in_by_browser(client, _ask_to_approve)
    credential = session_credential(token)
    return credential, await _who(server, credential)


async def renew_login(server: str) -> Credential:
    """The credential of a new sign-in to `server`, stored in place of the login that is there.

    The session of the former login is ended.
    """
    former = _stored_login(server)
    click.echo(f"{server} wants you to sign in again to do this.", err=True)
    credential, who = await _by_browser(server)
    renewed = Login(server, credential, who["org"], _user(who), former.is_insecure)
    with changed_logins() as held:
        current = held[0].current
        held[0] = replace(held[0].with_login(renewed), current=current)
    note = await _end_session(former)
    if note is not None:
        click.echo(f"countersign: {note}", err=True)
    if (former.user, former.org) != (renewed.user, renewed.org):
        raise Conflict(
            f"you signed in to {server} as {renewed.user}{_of_org(who)}, and the command was"
            f" {former.user}'s: run it again if you want it done by the new login"
        )
    return credential


def _ask_to_approve(codes: dict[str, Any]) -> None:
    minutes = int(codes["expires_in"]) // 60
    click.echo(
        f"Open {printable(codes['verification_uri'])} and enter the code"
        f" {printable(codes['user_code'])}\nWaiting for your approval, at most {minutes} minutes.",
        err=True,
    )


async def _who(server: str, credential: Credential) -> dict[str, Any]:
    """Whose credential it is, as the server says."""
    async with ServerClient(server, credential) as client:
        who: dict[str, Any] = await client.get(SESSION_PATH)
    if not isinstance(who["org"], str | None):
        raise TypeError("org")
    return who


async def _end_session(stored: Login) -> str | None:
    """End the session on its server; returns what went wrong, or None."""
    try:
        async with ServerClient(stored.server, stored.credential) as client:
            await client.delete(SESSION_PATH)
    except ServerRefusal as refusal:
        if refusal.answered_status == _ENDED_ALREADY:
            return None
        return f"the session could not be ended ({one_line(refusal)}): end it on your profile page"
    return None


def _read_token() -> str:
    if sys.stdin.isatty():
        token: str = click.prompt("Token", hide_input=True, err=True)
        return token
    return sys.stdin.read(_TOKEN_CHARS_MAX)


def _stored_login(url: str | None) -> Login:
    """The stored login to `url`, or the one in use. Raises NotFound."""
    logins = load_logins()
    if url is None:
        if logins.in_use is None:
            raise NotFound("not signed in to any server")
        return logins.in_use
    server = parse_server(url, is_insecure=True)
    stored = logins.by_server.get(server)
    if stored is None:
        raise NotFound(did_you_mean(f"not signed in to {server}", server, logins.by_server))
    return stored


def _local_status(target: Local) -> dict[str, Any]:
    path = str(load_settings().data_dir)
    return {"target": "data_dir", "path": path, "why": target.why, "logins": _logins()}


def _server_status(target: Remote) -> dict[str, Any]:
    who = asyncio.run(_who(target.server, target.credential))
    return {
        "target": "server",
        "server": target.server,
        "why": target.why,
        **who,
        "logins": _logins(),
    }


def _logins() -> list[str]:
    return sorted(load_logins().by_server)


def _status_lines(data: dict[str, Any]) -> list[str]:
    place = data.get("server") or f"data dir {data['path']}"
    shown = {"works on": place, "because of": data["why"]}
    if "actor" in data:
        shown |= {
            "signed in as": _user(data),
            "organisation": data["org"] or "all",
            "may": ", ".join(data["capabilities"]) or "nothing",
        }
        if data.get("expires_at"):
            shown["ends at"] = f"{data['expires_at']}, if it is not used again"
    if data["logins"]:
        shown["logins"] = ", ".join(data["logins"])
        shown["stored in"] = str(logins_path())
    return [f"{padded(name, _LABEL_WIDTH)}{printable(text)}" for name, text in shown.items()]


def _user(who: dict[str, Any]) -> str:
    """The member's address with their role, or the actor of another credential."""
    member = who.get("member")
    return str(who["actor"]) if member is None else f"{member['email']} ({member['role']})"


def _of_org(who: dict[str, Any]) -> str:
    return "" if who["org"] is None else f" of {who['org']}"


CLIENT: Final = {"client_id": "countersign-cli"}
GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_S: Final = 5
_INTERVAL_MAX_S: Final = 60.0
_LIFETIME_MAX_S: Final = 3600.0
_NOT_FOUND: Final = 404


class SignInFailed(Refusal):
    """The sign-in ended without a session."""

    status = 401
    text = "the sign-in failed"


_ENDS: Final = {
    "access_denied": "the sign-in was denied in the browser, or you signed out there meanwhile",
    "expired_token": "the sign-in was not approved in time: run `countersign login` again",
    "invalid_grant": "the code is no longer valid: run `countersign login` again",
}


async def sign_in_by_browser(client: ServerClient, ask: Callable[[dict[str, Any]], None]) -> str:
    """The token of a new session, once a member has approved it in a browser.

    `ask` shows the person the code and where to enter it. Raises SignInFailed, ServerRefusal.
    """
    try:
        codes = await client.post_form("/api/v1/device/code", CLIENT)
    except ServerRefusal as refusal:
        if refusal.answered_status == _NOT_FOUND:
            raise SignInFailed(
                f"{client.server} cannot sign in through a browser: use --with-token"
            ) from refusal
        raise
    form = CLIENT | {"grant_type": GRANT_TYPE, "device_code": str(codes["device_code"])}
    interval_s = _seconds(codes.get("interval", 5), _INTERVAL_MAX_S)
    ends_at = time.monotonic() + _seconds(codes["expires_in"], _LIFETIME_MAX_S)
    ask(codes)
    while True:
        await asyncio.sleep(interval_s)
        try:
            answer = await client.post_form("/api/v1/device/token", form)
        except ServerRefusal as refusal:
            interval_s = _next_interval(refusal, interval_s)
            if time.monotonic() >= ends_at:
                raise SignInFailed(_ENDS["expired_token"]) from refusal
            continue
        token: str = answer["access_token"]
        return token


def _seconds(given: object, most: float) -> float:
    """A length of time in an answer, from one second to `most`. Raises ValueError."""
    length = float(str(given))
    if math.isnan(length):
        raise ValueError(given)
    return min(max(length, 1.0), most)


def _next_interval(refusal: ServerRefusal, interval_s: float) -> float:
    """How long to wait after `refusal`. Raises it, or SignInFailed, if it is final."""
    if refusal.code == "authorization_pending":
        return interval_s
    # A server that restarts, or that has too many requests, wants a longer pause (RFC 8628, 3.5).
    if refusal.code == "slow_down" or refusal.is_temporary:
        return interval_s + SLOWER_S
    if refusal.code in _ENDS:
        raise SignInFailed(_ENDS[refusal.code]) from refusal
    raise refusal
