"""`countersign policy exceptions`: releases that members ask to be let through, and the answers."""

from typing import Final

import click

from service.cli.answers import Answer
from service.cli.anywhere import anywhere_command
from service.cli.backend import Backend
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
    backend: Backend, slug: str, state: str | None, limit: int | None
) -> Answer:
    """List what members asked for, newest first."""
    form = await backend.list_exceptions(slug, state, limit)
    place = "" if backend.place is None else f" at {backend.place}"
    return Answer(form, table=Table.of(f"Exceptions{place}", form["exceptions"], _COLUMNS, _TIMES))


@anywhere_command(exceptions, "allow", changes=True)
@click.argument("exception_id", metavar="ID")
@click.option("--reason", help="Why; stored with the decision.")
async def exceptions_allow(
    backend: Backend, slug: str, exception_id: str, reason: str | None
) -> Answer:
    """Let the release of a request through: an allow rule under the request's id."""
    form = await backend.decide_exception(slug, exception_id, "allow", reason)
    said = f"{form['package']} {form['version']} no longer waits for its cooldown in {slug}."
    return Answer(form, [said])


@anywhere_command(exceptions, "decline", changes=True)
@click.argument("exception_id", metavar="ID")
@click.option("--reason", help="Why; stored with the decision.")
async def exceptions_decline(
    backend: Backend, slug: str, exception_id: str, reason: str | None
) -> Answer:
    """Decline a request; the policy stays as it is."""
    form = await backend.decide_exception(slug, exception_id, "decline", reason)
    return Answer(form, [f"Declined: {form['package']} {form['version']}."])
