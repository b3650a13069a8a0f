"""`countersign bindings rejected`: CI identities that were rejected, and what they lack."""

from collections.abc import Iterator
from typing import Any, Final

import click

from service.ci.verifier.codes import FailureCode
from service.cli.answers import Answer
from service.cli.anywhere import anywhere_command
from service.cli.bindings import bindings
from service.cli.client import Client, given, org_path
from service.cli.proposals import printable, proposal_lines
from service.cli.tables import Table
from service.cli.times import INSTANT

LIMIT_MAX: Final = 1_000
_COLUMNS = ["verified", "code", "subject", "repositoryId", "eventName", "count", "lastAt"]


@anywhere_command(bindings, "rejected")
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
    "--since",
    metavar="INSTANT",
    type=INSTANT,
    help="Rejected at this instant or later; 24h is that long ago.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=100,
    show_default=True,
    help="How many entries, newest first.",
)
async def bindings_rejected(
    client: Client,
    slug: str,
    is_verified: bool | None,
    code: str | None,
    since: str | None,
    limit: int,
) -> Answer:
    """List the CI identities that were rejected recently.

    Below the list, for each that a binding would help: what to review, and the request to send.
    Only verified entries are confirmed by their issuer. Anyone who can send requests may have
    made up the others.
    """
    verified = None if is_verified is None else str(is_verified).lower()
    parameters = given(verified=verified, code=code, since=since, limit=limit)
    form = await client.get(org_path(slug, "oidc-bindings", "rejected"), parameters)
    rows = [_row(entry) for entry in form["rejected"]]
    return Answer(
        form, list(_lines(slug, form)), Table("Rejected subjects", _COLUMNS, rows, ["lastAt"])
    )


def _row(entry: dict[str, Any]) -> list[object]:
    code = "/".join(filter(None, (entry["code"], entry["detail"])))
    cells = [entry[column] for column in _COLUMNS[2:]]
    return ["yes" if entry["verified"] else "no", code, *cells]


def _lines(slug: str, form: dict[str, Any]) -> Iterator[str]:
    for entry in form["rejected"]:
        if entry["proposal"] is not None:
            yield ""
            yield f"What would make {printable(entry['subject'])} trusted:"
            yield from proposal_lines(slug, entry["proposal"])
