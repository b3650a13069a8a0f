"""`countersign audit`: reading the log, sealing it, seeing how it is stored."""

import json
from typing import Any

import click
import msgspec

from analytics.filters import FILTER_COLUMNS, Order
from analytics.instants import format_us
from service.audit.forms import PageQuery
from service.audit.lease import LeaseLost, LeaseTaken
from service.audit.pages import LIMIT_MAX, parse_page_request
from service.audit.stats import list_stats
from service.cli.desk import Answer, Desk, command, org_option, table
from service.orgs.repository import get_org

_SHOWN = ["created_at", "event", "decision", "packageName", "version", "actor", "subject"]


@click.group()
def audit() -> None:
    """The audit log: every install, block, admin change and sign-in."""


def _parameter_help() -> dict[str, str]:
    """What the API's form says of each query parameter, with its example."""
    _, components = msgspec.json.schema_components([PageQuery])
    return {
        name: " ".join(
            [
                schema["description"].replace("`", ""),
                *(f"Example: {_first(example)}" for example in schema.get("examples", [])[:1]),
            ]
        )
        for name, schema in components[PageQuery.__name__]["properties"].items()
    }


def _first(example: Any) -> Any:  # noqa: ANN401 - a JSON value
    return example[0] if isinstance(example, list) else example


_HELP = _parameter_help()


def _with_filters(function: Any) -> Any:  # noqa: ANN401 - click decorates what it decorates
    """Give a command one option for each filter, as the API has them."""
    for name in reversed(FILTER_COLUMNS):
        option = click.option(
            f"--{name.replace('_', '-')}", name, metavar="VALUE", multiple=True, help=_HELP[name]
        )
        function = option(function)
    return function


@command(audit, "query")
@org_option
@click.option("--since", metavar="INSTANT", help=_HELP["since"])
@click.option("--until", metavar="INSTANT", help=_HELP["until"])
@_with_filters
@click.option("--order", type=click.Choice([order.value for order in Order]), help=_HELP["order"])
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), help=_HELP["limit"])
@click.option("--cursor", help=_HELP["cursor"])
async def audit_query(desk: Desk, slug: str, **given: Any) -> Answer:  # noqa: ANN401
    """Print a page of an organisation's audit log, newest first.

    Rows must match every filter that is given. Repeating one means OR, and ! before a value
    negates it.
    """
    parameters = {
        name: [str(one) for one in value] if isinstance(value, tuple) else [str(value)]
        for name, value in given.items()
        if value not in (None, ())
    }
    here = desk.services
    async with here.store.read() as session:
        org = await get_org(session, slug)
    page = await here.audit_log.page(org, parse_page_request(parameters), here.clock())
    entries = [json.loads(entry) for entry in page.entries]
    floor = page.retention_floor
    return Answer(
        {
            "org": slug,
            "entries": entries,
            "next_cursor": page.next_cursor,
            "retention_floor": None if floor is None else format_us(floor),
        },
        lines=[f"More: --cursor {page.next_cursor}"] if page.next_cursor else [],
        table=table(
            f"Audit log of {slug}, times in UTC",
            _SHOWN,
            [[entry[column] for column in _SHOWN] for entry in entries],
        ),
    )


@command(audit, "seal")
async def audit_seal(desk: Desk) -> Answer:
    """Move every journal row into segments now.

    The service does so by itself when it is due.
    """
    try:
        segments = await desk.services.sealer.seal_due(everything=True)
    except LeaseLost as error:
        raise LeaseTaken from error
    rows = sum(segment.rows for segment in segments)
    return Answer(
        {"segments": [segment.segment_id for segment in segments], "rows": rows},
        [f"Sealed {rows} rows into {len(segments)} segments."],
    )


@command(audit, "stats")
async def audit_stats(desk: Desk) -> Answer:
    """Show what is stored for each organisation."""
    async with desk.services.store.read() as session:
        stats = await list_stats(session)
    columns = ["org", "rows", "days", "segments", "bytes", "journal_rows", "oldest"]
    return Answer(
        stats, table=table("Audit log", columns, [[line[c] for c in columns] for line in stats])
    )
