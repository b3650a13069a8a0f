"""`countersign access`: who could do what, as of a date."""

from collections.abc import Iterator

import click

from service.access.roles import UNSCOPED_WORDS
from service.cli.client import Client, JsonObject, drop_none, org_path, rephrased
from service.cli.commands import api_command, current_run
from service.cli.output import CommandResult, Table
from service.cli.root import root
from service.cli.times import INSTANT


@root.group("access")
def access() -> None:
    """Access: who could do what, as of a date."""


@api_command(access, "report")
@click.option(
    "--as-of",
    metavar="INSTANT",
    type=INSTANT,
    help="A past instant; a date is its first instant, UTC; 7d is that long ago. Default: now.",
)
@click.option("--csv", "as_csv", is_flag=True, help="One CSV table with everything.")
async def access_report(
    client: Client, slug: str, as_of: str | None, *, as_csv: bool
) -> CommandResult:
    """Report members, roles, team admins, keys and bindings as they were.

    It is put together from what is stored and from the audit log, and says what is no longer known.
    """
    path, asked = org_path(slug, "access-report"), drop_none(asOf=as_of)
    with rephrased(lambda text: text.replace("asOf", "--as-of")):
        if as_csv and not current_run().output.as_json:
            text = await client.get_text(path, asked | {"format": "csv"})
            return CommandResult(None, text.splitlines())
        answer = await client.get(path, asked)
    teams = {team["id"]: team["name"] for team in answer["teams"]}
    members = [
        [
            member["email"],
            member["role"],
            " ".join(member["capabilities"]) or None,
            ", ".join(teams[team_id] for team_id in member["administers"]) or None,
            member["since"],
        ]
        for member in answer["members"]
    ]
    title = f"Members of {slug} as of {answer['as_of']}"
    table = Table(title, ["member", "role", "may", "admin of", "since"], members)
    return CommandResult(answer, list(_lines(answer)), table)


def _lines(answer: JsonObject) -> Iterator[str]:
    """What follows the table of members."""
    for role in answer["roles"]:
        yield f"{role['role']} may: {' '.join(role['capabilities']) or 'nothing'}"
    for key in answer["api_keys"]:
        yield (
            f"API key {key['id']} ({key['name']}) may {' '.join(key['scopes']) or UNSCOPED_WORDS}"
            f" in {key['project_id'] or 'the whole organisation'} since {key['since']}"
        )
    for binding in answer["bindings"]:
        yield (
            f"Binding {binding['id']} trusts {binding['sub_pattern']} of {binding['issuer']}"
            f" since {binding['since']}"
        )
    yield from answer["notes"]
