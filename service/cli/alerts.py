"""`countersign alert`: rules over the audit log that speak up, and where they fired."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from service.cli.client import Client, drop_none, org_path
from service.cli.commands import CURSOR, api_command
from service.cli.files import READ_PATH
from service.cli.output import CommandResult, Table, more_lines
from service.cli.root import root

_ALERTS: Final = {
    "id": "id",
    "fired": "fired_at",
    "rule": "rule",
    "of": "key",
    "rows": "rows",
    "state": "state",
}
_KINDS: Final = ("count", "silence", "rejected", "integrity", "clock", "seal")
_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS: Final = (
    click.option("--kind", type=click.Choice(_KINDS), help="What it fires for; default: count."),
    click.option("--query", help="Filters, as in an address of the audit page."),
    click.option("--at-least", type=click.IntRange(1), help="So many rows; default 1."),
    click.option("--window", help="Within so long, such as 5m; the default."),
    click.option("--per", help="A filter, such as actor: each value counts by itself."),
    click.option("--where", multiple=True, help="A member of the payload: rows>=10000."),
    click.option("--outside", help="Outside of hours: Mon-Fri 08:00-18:00 Europe/Berlin."),
    click.option("--percent", type=click.IntRange(0, 99), help="Of a silence: what is far less."),
    click.option("--sigma", type=READ_PATH, help="A file with a Sigma rule, in place of --query."),
)


def _rule_options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _rule(name: str, sigma: Path | None, **given: Any) -> dict[str, Any]:  # noqa: ANN401
    text = None if sigma is None else sigma.read_text()
    return drop_none(name=name, sigma=text, **{key: value or None for key, value in given.items()})


@root.group("alert")
def alert() -> None:
    """Rules over the audit log that speak up, and where they fired."""


@alert.group("rule")
def alert_rule() -> None:
    """What alerts are fired for."""


@api_command(alert, "list")
@click.option(
    "--state",
    type=click.Choice(["open", "acknowledged", "closed"]),
    help="Only those in this state.",
)
@click.option("--limit", type=click.IntRange(1, 500), help="Alerts on a page; default 100.")
@CURSOR
async def alert_list(client: Client, /, slug: str, **given: Any) -> CommandResult:  # noqa: ANN401
    """List where rules fired, newest first."""
    page = await client.get(org_path(slug, "alerts"), drop_none(**given))
    table = Table.of(f"Alerts{client.at_place}", page["alerts"], _ALERTS, ["fired"])
    return CommandResult(page, more_lines(page), table)


@api_command(alert, "handle", changes=True)
@click.argument("alert_id")
@click.option(
    "--state",
    type=click.Choice(["acknowledged", "closed"]),
    required=True,
    help="What became of it.",
)
@click.option("--note", default="", help="Why; recorded with it.")
async def alert_handle(
    client: Client, slug: str, alert_id: str, state: str, note: str
) -> CommandResult:
    """Acknowledge or close an alert."""
    path = org_path(slug, "alerts", alert_id, "handle")
    handled = await client.post(path, {"state": state, "note": note})
    return CommandResult(handled, [f"{alert_id} is {state}."])


@api_command(alert_rule, "list")
async def alert_rule_list(client: Client, slug: str) -> CommandResult:
    """List the rules, and those that are shipped, which are off."""
    listed = await client.get(org_path(slug, "alerts", "rules"))
    rows = [{"id": entry["id"], **entry["rule"]} for entry in listed["rules"]]
    rows += [{"id": "shipped", **rule} for rule in listed["shipped"]]
    columns = ("id", "name", "kind", "query", "at_least", "window", "per", "is_on")
    return CommandResult(listed, [], Table.of(f"Rules{client.at_place}", rows, columns))


@api_command(alert_rule, "create", changes=True)
@click.argument("name")
@_rule_options
async def alert_rule_create(
    client: Client,
    /,
    slug: str,
    name: str,
    **given: Any,  # noqa: ANN401
) -> CommandResult:
    """Create a rule: it counts rows from now on. Try it first."""
    made = await client.post(org_path(slug, "alerts", "rules"), _rule(name, **given))
    return CommandResult(made, [f"Created {made['id']}: {name}."])


@api_command(alert_rule, "try")
@click.argument("name", default="trial")
@_rule_options
@click.option(
    "--days", type=click.IntRange(1, 90), default=30, help="The last so many days; default 30."
)
async def alert_rule_try(
    client: Client,
    /,
    slug: str,
    name: str,
    days: int,
    **given: Any,  # noqa: ANN401
) -> CommandResult:
    """Show where a rule would have fired. Nothing is recorded."""
    body = {"rule": _rule(name, **given), "days": days}
    tried = await client.post(org_path(slug, "alerts", "backtest"), body)
    told = f"It would have fired {tried['count']} times in {days} days."
    columns = {name: key for name, key in _ALERTS.items() if name not in {"id", "state"}}
    table = Table.of(f"Alerts{client.at_place}", tried["alerts"], columns, ["fired"])
    return CommandResult(tried, [told], table)


@api_command(alert_rule, "delete", changes=True)
@click.argument("rule_id")
async def alert_rule_delete(client: Client, slug: str, rule_id: str) -> CommandResult:
    """Delete a rule; its alerts stay."""
    deleted = await client.delete(org_path(slug, "alerts", "rules", rule_id))
    return CommandResult(deleted, [f"Deleted {rule_id}."])
