"""`countersign bindings rejected`: whom the verifier turned away, and what they lack."""

import json
from typing import Any

import click
import msgspec

from service.cli.bindings import bindings
from service.cli.desk import Answer, Desk, command, org_option, table
from service.orgs.repository import get_org
from service.rejected.forms import rejected_form
from service.rejected.listing import LIMIT_DEFAULT, LIMIT_MAX, Wanted, list_entries
from service.verifier.codes import FailureCode

_COLUMNS = [
    *("verified", "code", "detail", "subject", "repositoryId", "eventName", "count", "lastAt"),
]


@command(bindings, "rejected")
@org_option
@click.option(
    "--verified/--unverified",
    "is_verified",
    default=None,
    help="Only those whose token held apart from trust, or only the others.",
)
@click.option(
    "--code",
    type=click.Choice([code.value for code in FailureCode]),
    help="Only those turned away for this.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="How many, newest first.",
)
async def bindings_rejected(
    desk: Desk, slug: str, is_verified: bool | None, code: str | None, limit: int
) -> Answer:
    """List the CI identities that were turned away lately.

    Below them, what to send to trust those that could be. Only what is verified is the issuer's
    word; anybody who can send requests may have made up the rest.
    """
    here = desk.services
    async with here.store.read() as session:
        org = await get_org(session, slug)
    wanted = Wanted(is_verified=is_verified, code=FailureCode(code) if code else None, limit=limit)
    entries = await list_entries(here.store, here.issuers, org.id, wanted, here.clock())
    form = msgspec.to_builtins(rejected_form(slug, entries))
    rows = [[_shown(entry[column]) for column in _COLUMNS] for entry in form["rejected"]]
    return Answer(form, _drafts(form["rejected"]), table("Rejected subjects", _COLUMNS, rows))


def _drafts(entries: list[dict[str, Any]]) -> list[str]:
    """For each draft what to look at, what to revoke, and what to send."""
    lines = []
    for entry in entries:
        if entry["draft"] is None:
            continue
        lines += ["", _shown(f"{entry['subject']}: {entry['review']}")]
        lines += [f"  revoke first: {binding_id}" for binding_id in entry["revokeFirst"]]
        lines += [f"  then create:  {json.dumps(entry['draft'])}"]
    return lines


def _shown(value: object) -> Any:  # noqa: ANN401 - text, or nothing
    """`value` as a terminal may be sent it: tokens can hold what a terminal obeys."""
    if value is None:
        return None
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(value))
