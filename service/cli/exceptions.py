"""`countersign policy exceptions`: releases that members ask to be let through, and the answers."""

from typing import Final

import click

from service.cli.answers import Answer
from service.cli.anywhere import anywhere_command
from service.cli.client import Client, Form, given, org_path
from service.cli.policy import policy
from service.cli.tables import Table

STATES: Final = ("open", "allowed", "declined")
_COLUMNS: Final = (
    "id",
    "state",
    "ecosystem",
    "package",
    "version",
    "reason",
    "requested_by",
    "requested_at",
)
_TIMES: Final = ("requested_at",)


@policy.group("exceptions")
def exceptions() -> None:
    """Exceptions: releases to be let through before their cooldown ends."""


@anywhere_command(exceptions, "list")
@click.option("--state", type=click.Choice(STATES), help="Only in this state; default: all.")
@click.option("--limit", type=click.IntRange(min=1, max=500), help="At most so many.")
async def exceptions_list(
    client: Client, slug: str, state: str | None, limit: int | None
) -> Answer:
    """List what members asked for, newest first."""
    form = await client.get(_path(slug), given(state=state, limit=limit))
    title = f"Exceptions{client.at_place}"
    return Answer(form, table=Table.of(title, form["exceptions"], _COLUMNS, _TIMES))


@anywhere_command(exceptions, "allow", changes=True)
@click.argument("exception_id", metavar="ID")
@click.option("--reason", help="Why; stored with the decision.")
async def exceptions_allow(
    client: Client, slug: str, exception_id: str, reason: str | None
) -> Answer:
    """Let the release of a request through: an allow rule under the request's id."""
    form = await _decide(client, slug, exception_id, "allow", reason)
    said = f"{form['package']} {form['version']} no longer waits for its cooldown in {slug}."
    return Answer(form, [said])


@anywhere_command(exceptions, "decline", changes=True)
@click.argument("exception_id", metavar="ID")
@click.option("--reason", help="Why; stored with the decision.")
async def exceptions_decline(
    client: Client, slug: str, exception_id: str, reason: str | None
) -> Answer:
    """Decline a request; the policy stays as it is."""
    form = await _decide(client, slug, exception_id, "decline", reason)
    return Answer(form, [f"Declined: {form['package']} {form['version']}."])


async def _decide(
    client: Client, slug: str, exception_id: str, decision: str, reason: str | None
) -> Form:
    path = _path(slug, exception_id, "decide")
    return await client.post(path, given(decision=decision, reason=reason))


def _path(slug: str, *parts: str) -> str:
    return org_path(slug, "policy", "exceptions", *parts)
