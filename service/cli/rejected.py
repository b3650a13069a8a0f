"""`countersign bindings rejected`: CI identities that were rejected, and what they lack."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from service.cli.bindings import bindings
from service.cli.context import Answer, CommandContext, command, org_option, table
from service.cli.proposals import printable, proposal_lines
from service.orgs.repository import get_org
from service.rejected.forms import rejected_form
from service.rejected.listing import LIMIT_DEFAULT, LIMIT_MAX, Wanted, list_entries
from service.verifier.codes import FailureCode

_COLUMNS = ["verified", "code", "subject", "repositoryId", "eventName", "count", "lastAt"]


@command(bindings, "rejected")
@org_option
@click.option(
    "--verified/--unverified",
    "is_verified",
    default=None,
    help="Only entries confirmed by their issuer, or only the others.",
)
@click.option(
    "--code",
    metavar="CODE",
    type=click.Choice([code.value for code in FailureCode]),
    help="Only entries with this failure code, such as unbound_oidc_subject.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="How many entries, newest first.",
)
async def bindings_rejected(
    context: CommandContext, slug: str, is_verified: bool | None, code: str | None, limit: int
) -> Answer:
    """List the CI identities that were rejected recently.

    Below the list, for each that a binding would help: what to review, and the request to send.
    Only verified entries are confirmed by their issuer. Anyone who can send requests may have
    made up the others.
    """
    services = context.services
    async with services.store.read() as session:
        org = await get_org(session, slug)
    wanted = Wanted(is_verified=is_verified, code=FailureCode(code) if code else None, limit=limit)
    entries = await list_entries(services.store, services.issuers, org.id, wanted, services.clock())
    form = msgspec.to_builtins(rejected_form(slug, entries))
    rows = [_row(entry) for entry in form["rejected"]]
    return Answer(form, list(_lines(slug, form)), table("Rejected subjects", _COLUMNS, rows))


def _row(entry: dict[str, Any]) -> list[object]:
    code = "/".join(filter(None, (entry["code"], entry["detail"])))
    cells = [printable(entry[column]) for column in _COLUMNS[2:]]
    return ["yes" if entry["verified"] else "no", code, *cells]


def _lines(slug: str, form: dict[str, Any]) -> Iterator[str]:
    for entry in form["rejected"]:
        if entry["proposal"] is not None:
            yield ""
            yield f"What would make {printable(entry['subject'])} trusted:"
            yield from proposal_lines(slug, entry["proposal"])
