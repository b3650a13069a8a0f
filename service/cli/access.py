"""`countersign access`: who could do what, as of a date."""

import click
import msgspec

from analytics.model.instants import format_ms
from service.cli.answers import Answer
from service.cli.context import CommandContext, command, org_option
from service.cli.root import root
from service.cli.tables import Table
from service.cli.times import INSTANT
from service.core.errors import Invalid
from service.orgs.api_keys import UNSCOPED_WORDS
from service.store.organisations import get_org
from service.trust.bindings.listing import parse_as_of
from service.trust.reports.access_api import AccessReportForm, report_csv, report_form
from service.trust.reports.access_report import report_access


@root.group("access")
def access() -> None:
    """Access: who could do what, as of a date."""


@command(access, "report")
@org_option
@click.option(
    "--as-of",
    metavar="INSTANT",
    type=INSTANT,
    help="A past instant; a date is its first instant, UTC; 7d is that long ago. Default: now.",
)
@click.option("--csv", "as_csv", is_flag=True, help="One CSV table with everything.")
async def access_report(
    context: CommandContext, slug: str, as_of: str | None, *, as_csv: bool
) -> Answer:
    """Report members, roles, team admins, keys and bindings as they were.

    It is put together from what is stored and from the audit log, and says what is no longer known.
    """
    services = context.services
    async with services.store.read() as session:
        org = await get_org(session, slug)
    instant, now = parse_as_of(as_of), services.clock()
    try:
        report = await report_access(services.store, services.lake, org, instant, now)
    except Invalid as error:
        raise Invalid(error.text.replace("asOf", "--as-of")) from error
    form = report_form(report)
    data = msgspec.to_builtins(form)
    if as_csv:
        return Answer(data, report_csv(report).splitlines())
    teams = {team.id: team.name for team in form.teams}
    members = [
        [
            member.email,
            member.role,
            " ".join(member.capabilities) or None,
            ", ".join(teams[team_id] for team_id in member.administers) or None,
            member.since,
        ]
        for member in form.members
    ]
    title = f"Members of {slug} as of {format_ms(report.as_of)}"
    table = Table(title, ["member", "role", "may", "admin of", "since"], members)
    return Answer(data, _lines(form), table)


def _lines(form: AccessReportForm) -> list[str]:
    """What follows the table of members."""
    return [
        *(f"{role.role} may: {' '.join(role.capabilities) or 'nothing'}" for role in form.roles),
        *(
            f"API key {key.id} ({key.name}) may {' '.join(key.scopes) or UNSCOPED_WORDS} in"
            f" {key.project_id or 'the whole organisation'} since {key.since}"
            for key in form.api_keys
        ),
        *(
            f"Binding {binding.id} trusts {binding.sub_pattern} of {binding.issuer}"
            f" since {binding.since}"
            for binding in form.bindings
        ),
        *form.notes,
    ]
