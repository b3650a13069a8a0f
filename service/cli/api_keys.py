"""`countersign apikey`: credentials of machines, on a server or on a data dir."""

from typing import Any

import click

from service.access.roles import KEY_SCOPES
from service.cli.client import Client, drop_none, org_path
from service.cli.commands import api_command
from service.cli.output import CommandResult, Table
from service.cli.root import root

_COLUMNS = (
    "id",
    "name",
    "scopes",
    "created_by",
    "created_at",
    "last_used_at",
    "expires_at",
    "note",
)


@root.group("apikey")
def apikey() -> None:
    """API keys: credentials of proxies and scripts."""


@api_command(apikey, "issue", changes=True)
@click.option("--name", required=True, help="What the key is for.")
@click.option(
    "--scope",
    "scopes",
    required=True,
    multiple=True,
    type=click.Choice([scope.value for scope in KEY_SCOPES]),
    help="What the key may do, and nothing else; repeat it for more.",
)
@click.option("--project", metavar="PROJECT", help="Limit the key to a project (id or name).")
@click.option(
    "--expires",
    metavar="WHEN",
    help="Refuse the key from then on: a length (90d, 12h), a date, an instant, or `never`."
    " Default: in 90 days.",
)
async def apikey_issue(
    client: Client,
    slug: str,
    name: str,
    scopes: tuple[str, ...],
    project: str | None,
    expires: str | None,
) -> CommandResult:
    """Issue an API key; its value is shown only once.

    On a server you can issue keys that may do what you may do yourself.
    """
    body = drop_none(name=name, scopes=scopes, project=project, expires=expires)
    return _issued(await client.post(_path(slug), body))


def _issued(key: dict[str, Any]) -> CommandResult:
    until = f"expires {key['expires_at']}" if key["expires_at"] else "never expires"
    lines = [f"Key {key['id']} ({key['name']}, {until}). Its value, shown only once:"]
    return CommandResult(key, [*lines, key["secret"]])


@api_command(apikey, "list")
async def apikey_list(client: Client, slug: str) -> CommandResult:
    """List API keys with owner, last use and expiry, ended ones included."""
    answer = await client.get(_path(slug))
    keys = answer["api_keys"]
    shown = [key | {"scopes": key["scopes"] or None, "note": _note(key)} for key in keys]
    table = Table.of(f"API keys of {slug}", shown, _COLUMNS, _COLUMNS[4:7])
    return CommandResult({"api_keys": keys}, table=table)


def _note(key: dict[str, Any]) -> str | None:
    """What its holder has to do about a live key."""
    if not key["is_live"]:
        return "revoked" if key["revoked_at"] else "expired"
    if not key["scopes"]:
        return "no scopes: rotate it"
    return "expires soon: rotate it" if key["expires_soon"] else None


@api_command(apikey, "rotate", changes=True)
@click.argument("key_id")
@click.option(
    "--overlap",
    default="24h",
    show_default=True,
    metavar="LENGTH",
    help="How long the old key works beside the new one: 0, 12h or 7d, at most 90d.",
)
async def apikey_rotate(client: Client, slug: str, key_id: str, overlap: str) -> CommandResult:
    """Issue a key in place of KEY_ID; its value is shown only once.

    It has the same name, project, scopes and length of life. The old key ends after the overlap.
    """
    new = await client.post(_path(slug, key_id, "rotate"), {"overlap": overlap})
    issued = _issued(new)
    ends = f"{key_id} is refused from {new['replaced_until']} on."
    return CommandResult(issued.data, [*issued.lines, ends])


@api_command(apikey, "revoke", changes=True)
@click.argument("key_id")
async def apikey_revoke(client: Client, slug: str, key_id: str) -> CommandResult:
    """Revoke an API key, with immediate effect."""
    await client.delete(_path(slug, key_id))
    return CommandResult({"id": key_id}, [f"Revoked {key_id}."])


def _path(slug: str, *parts: str) -> str:
    return org_path(slug, "api-keys", *parts)
