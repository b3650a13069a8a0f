"""Signing in to a server through a browser, and what a login is of."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click

from service.cli.client import Client, ServerRefusal, org_path
from service.cli.logins import (
    Credential,
    Login,
    MachineLogin,
    changed_logins,
    load_logins,
    session_credential,
)
from service.cli.output import did_you_mean, one_line, printable
from service.cli.target import parse_server
from service.core.errors import Conflict, NotFound, Refusal

SESSION_PATH: Final = "/api/v1/session"
_ENDED_ALREADY: Final = 401
CLIENT: Final = {"client_id": "countersign-cli"}
GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_S: Final = 5
_INTERVAL_MAX_S: Final = 60.0
_LIFETIME_MAX_S: Final = 3600.0
_NOT_FOUND: Final = 404


async def by_browser(server: str) -> tuple[Credential, dict[str, Any]]:
    """The credential of a new sign-in to `server`, and whose it is. Raises DeviceSignInFailed."""
    async with Client(server, None) as client:
        token = await sign_in_by_browser(client, _ask_to_approve)
    credential = session_credential(token)
    return credential, await whose(server, credential)


async def renew_login(server: str) -> Credential:
    """The credential of a new sign-in to `server`, stored in place of the login that is there.

    The session of the former login is ended.
    """
    former = stored_login(server)
    click.echo(f"{server} wants you to sign in again to do this.", err=True)
    credential, who = await by_browser(server)
    renewed = Login(server, credential, who["org"], user_of(who), former.is_insecure)
    with changed_logins() as held:
        current = held[0].current
        held[0] = replace(held[0].with_login(renewed), current=current)
    note = await end_session(former)
    if note is not None:
        click.echo(f"countersign: {note}", err=True)
    if (former.user, former.org) != (renewed.user, renewed.org):
        raise Conflict(
            f"you signed in to {server} as {renewed.user}{of_org(who)}, and the command was"
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


async def whose(server: str, credential: Credential) -> dict[str, Any]:
    """Whose credential it is, as the server says."""
    async with Client(server, credential) as client:
        who: dict[str, Any] = await client.get(SESSION_PATH)
    if not isinstance(who["org"], str | None):
        raise TypeError("org")
    return who


async def end_session(stored: Login) -> str | None:
    """End the session on its server; returns what went wrong, or None."""
    try:
        async with Client(stored.server, stored.credential) as client:
            if stored.machine is not None:
                await _revoke_machine(client, stored.machine)
            await client.delete(SESSION_PATH)
    except ServerRefusal as refusal:
        if refusal.answered_status == _ENDED_ALREADY:
            return (
                None
                if stored.machine is None
                else (
                    "the session has ended before, so its machine token is not revoked: it works"
                    f" until {stored.machine.expires_at}, unless you revoke it on your profile page"
                )
            )
        return f"the session could not be ended ({one_line(refusal)}): end it on your profile page"
    return None


async def _revoke_machine(client: Client, machine: MachineLogin) -> None:
    """Revoke a machine token, unless it has ended."""
    try:
        await client.delete(org_path(machine.org, "machine-tokens", machine.id))
    except ServerRefusal as refusal:
        if refusal.answered_status != _NOT_FOUND:
            raise


def stored_login(url: str | None) -> Login:
    """The stored login to `url`, or the one in use. Raises NotFound."""
    logins = load_logins()
    if url is None:
        if logins.in_use is None:
            raise NotFound("not signed in to any server: run `countersign login URL`")
        return logins.in_use
    server = parse_server(url, is_insecure=True)
    stored = logins.by_server.get(server)
    if stored is None:
        raise NotFound(did_you_mean(f"not signed in to {server}", server, logins.by_server))
    return stored


def user_of(who: dict[str, Any]) -> str:
    """The member's address with their role, or the actor of another credential."""
    member = who.get("member")
    return str(who["actor"]) if member is None else f"{member['email']} ({member['role']})"


def of_org(who: dict[str, Any]) -> str:
    """` of ` and the organisation of a credential; empty for the operator."""
    return "" if who["org"] is None else f" of {who['org']}"


class DeviceSignInFailed(Refusal):
    """The sign-in ended without a session."""

    status = 401
    text = "the sign-in failed"


_ENDS: Final = {
    "access_denied": "the sign-in was denied in the browser, or you signed out there meanwhile",
    "expired_token": "the sign-in was not approved in time: run `countersign login` again",
    "invalid_grant": "the code is no longer valid: run `countersign login` again",
}


async def sign_in_by_browser(client: Client, ask: Callable[[dict[str, Any]], None]) -> str:
    """The token of a new session, once a member has approved it in a browser.

    `ask` shows the person the code and where to enter it. Raises DeviceSignInFailed, ServerRefusal.
    """
    try:
        codes = await client.post_form("/api/v1/device/code", CLIENT)
    except ServerRefusal as refusal:
        if refusal.answered_status == _NOT_FOUND:
            raise DeviceSignInFailed(
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
                raise DeviceSignInFailed(_ENDS["expired_token"]) from refusal
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
    """How long to wait after `refusal`. Raises it, or DeviceSignInFailed, if it is final."""
    if refusal.code == "authorization_pending":
        return interval_s
    # A server that restarts, or that has too many requests, wants a longer pause (RFC 8628, 3.5).
    if refusal.code == "slow_down" or refusal.is_temporary:
        return interval_s + SLOWER_S
    if refusal.code in _ENDS:
        raise DeviceSignInFailed(_ENDS[refusal.code]) from refusal
    raise refusal
