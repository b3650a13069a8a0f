"""`countersign audit prune`: dropping what is past retention."""

from collections.abc import Sequence
from typing import Any

import click

from service.audit.pruner import Pruned
from service.cli.audit import audit, one_at_a_time
from service.cli.context import Answer, CommandContext, command, table


@command(audit, "prune")
@click.option("--org", "slug", metavar="SLUG", help="This organisation only.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would go and change nothing.")
@click.option(
    "--accept-clock",
    "is_clock_accepted",
    is_flag=True,
    help="The clock is right, though the last run is over 48 hours ago.",
)
async def audit_prune(
    context: CommandContext, slug: str | None, *, is_dry: bool, is_clock_accepted: bool
) -> Answer:
    """Drop the days that are past retention now.

    The service does so by itself. A day goes when all of it is past the longest retention that
    its organisation held in the last 7 days, and never under a legal hold.
    """
    pruner = context.services.pruner
    if is_dry:
        past = await pruner.forecast(slug=slug, is_clock_accepted=is_clock_accepted)
    else:
        with one_at_a_time():
            past = await pruner.prune(
                context.audit_context, slug=slug, is_clock_accepted=is_clock_accepted
            )
    return _answer(past, is_dry=is_dry)


def _answer(past: Sequence[Pruned], *, is_dry: bool) -> Answer:
    going = [found for found in past if not found.is_held]
    days, rows = sum(len(found.days) for found in going), sum(found.rows for found in going)
    return Answer(
        {"dry_run": is_dry, "days": days, "rows": rows, "orgs": [_form(found) for found in past]},
        [f"{'Would drop' if is_dry else 'Dropped'} {rows} rows of {days} days."],
        table(
            "Past retention",
            ["org", "days", "from", "to", "rows", "under a legal hold"],
            [
                [
                    found.slug,
                    len(found.days),
                    found.days[0],
                    found.days[-1],
                    found.rows,
                    "kept" if found.is_held else None,
                ]
                for found in past
            ],
        )
        if past
        else None,
    )


def _form(found: Pruned) -> dict[str, Any]:
    return {
        "org": found.slug,
        "held": found.is_held,
        "days": [str(day) for day in found.days],
        "rows": found.rows,
    }
