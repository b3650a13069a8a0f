"""`countersign bindings rejected`: whom the verifier turned away, and what they lack."""

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
    help="Only those whose issuer does say this, or only the others.",
)
@click.option(
    "--code",
    metavar="CODE",
    type=click.Choice([code.value for code in FailureCode]),
    help="Only those turned away for this, such as unbound_oidc_subject.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="How many, newest first.",
)
async def bindings_rejected(
    context: CommandContext, slug: str, is_verified: bool | None, code: str | None, limit: int
) -> Answer:
    """List the CI identities that were turned away lately.

    Below the list, for each of them that a binding would help: what to look at, and what to send.
    Only what is verified is the issuer's word. The rest may have been made up by anybody who can
    send requests.
    """
    services = context.services
    async with services.store.read() as session:
        org = await get_org(session, slug)
    wanted = Wanted(is_verified=is_verified, code=FailureCode(code) if code else None, limit=limit)
    entries = await list_entries(services.store, services.issuers, org.id, wanted, services.clock())
    said = msgspec.to_builtins(rejected_form(slug, entries))
    rows = [_row(entry) for entry in said["rejected"]]
    return Answer(said, list(_lines(slug, said)), table("Rejected subjects", _COLUMNS, rows))


def _row(entry: dict[str, Any]) -> list[object]:
    code = "/".join(filter(None, (entry["code"], entry["detail"])))
    said = [printable(entry[column]) for column in _COLUMNS[2:]]
    return ["yes" if entry["verified"] else "no", code, *said]


def _lines(slug: str, said: dict[str, Any]) -> Iterator[str]:
    for entry in said["rejected"]:
        if entry["proposal"] is not None:
            yield ""
            yield f"What would make {printable(entry['subject'])} trusted:"
            yield from proposal_lines(slug, entry["proposal"])
