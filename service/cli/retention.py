"""`countersign audit prune`: drop days that are past retention."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from service.audit.pruner import Pruned
from service.cli.answers import Answer
from service.cli.audit import audit
from service.cli.context import CommandContext, command
from service.cli.lease_wait import wait_option, when_lease_is_free
from service.cli.tables import Table


@command(audit, "prune", changes=True)
@click.option("--org", "slug", metavar="SLUG", help="Only this organisation.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be dropped.")
@click.option(
    "--accept-clock",
    "is_clock_accepted",
    is_flag=True,
    help="Confirm that the clock is right although a run is refused; leaves a row in each log.",
)
@wait_option
async def audit_prune(
    context: CommandContext,
    slug: str | None,
    *,
    is_dry: bool,
    is_clock_accepted: bool,
    wait_s: float,
) -> Answer:
    """Drop the days that are past retention now.

    The service does this automatically. A day is dropped 48 hours after all of it was past the
    longest retention that its organisation had in the 7 days before, and never under a legal hold.
    """
    pruner = context.services.pruner
    if is_dry:
        past = await pruner.forecast(slug=slug, is_clock_accepted=is_clock_accepted)
    else:
        prune = partial(
            pruner.prune, context.audit_context, slug=slug, is_clock_accepted=is_clock_accepted
        )
        past = await when_lease_is_free(prune, wait_s)
    return _answer(past, is_dry=is_dry)


def _answer(past: Sequence[Pruned], *, is_dry: bool) -> Answer:
    dropped = [org for org in past if not org.is_held]
    days, rows = sum(len(org.days) for org in dropped), sum(org.rows for org in dropped)
    cells = [
        [
            org.slug,
            len(org.days),
            org.days[0],
            org.days[-1],
            org.rows,
            "kept" if org.is_held else None,
        ]
        for org in past
    ]
    columns = ["org", "days", "from", "to", "rows", "under a legal hold"]
    return Answer(
        {"dry_run": is_dry, "days": days, "rows": rows, "orgs": [_form(org) for org in past]},
        [f"{'Would drop' if is_dry else 'Dropped'} {rows} rows of {days} days."],
        Table("Past retention", columns, cells) if past else None,
    )


def _form(org: Pruned) -> dict[str, Any]:
    return {
        "org": org.slug,
        "held": org.is_held,
        "days": [str(day) for day in org.days],
        "rows": org.rows,
    }
