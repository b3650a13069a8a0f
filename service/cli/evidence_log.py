"""`countersign evidence export`, `checkpoint` and `policy`: what others verify without a server."""

import asyncio
import base64
import shutil
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import click

from analytics.evidence.bundle import ProvenRow, write_bundle
from analytics.evidence.notes import Note, consistency_text
from analytics.evidence.policies import policy_text
from analytics.model.filters import parse_query
from service.cli.audit import as_parameters, with_filters
from service.cli.client import Client, org_path
from service.cli.commands import api_command
from service.cli.evidence import evidence, read_checkpoint
from service.cli.files import STANDARD_OUTPUT, new_file, output_options
from service.cli.output import CommandResult, Table
from service.cli.progress import row_progress
from service.core.errors import Invalid

PAGE_ROWS: Final = 1_000
AT_ONCE: Final = 4
"""Proofs that are asked for at the same time."""

BUNDLE_ROWS_MAX: Final = 10_000

NO_ROWS: Final = Invalid.of("no row that is signed yet matches: see `countersign audit query`")
TOO_MANY_ROWS: Final = Invalid.of(
    f"over {BUNDLE_ROWS_MAX} rows match: choose fewer, or take an export, whose receipt is signed"
)


@api_command(evidence, "checkpoint")
async def evidence_checkpoint(client: Client, slug: str) -> CommandResult:
    """Print the last signed checkpoint of an organisation's log: keep it elsewhere.

    Who holds it notices if rows before it are changed or removed. --json has its keys, too.
    """
    checkpoint = await client.get(org_path(slug, "audit", "checkpoint"))
    return CommandResult(checkpoint, checkpoint["note"].splitlines())


@api_command(evidence, "policy")
async def evidence_policy(client: Client, slug: str) -> CommandResult:
    """Print the policy file of an organisation's log: its name and its keys.

    Give the file (c2sp.org/tlog-policy) to those who verify, in another way than what is verified.
    """
    checkpoint = await client.get(org_path(slug, "audit", "checkpoint"))
    policy = _policy_of(checkpoint)
    return CommandResult({"policy": policy}, policy.splitlines())


@api_command(evidence, "report")
async def evidence_report(client: Client, slug: str) -> CommandResult:
    """Print what auditors ask for, and what the service shows for it now.

    Who read the log in the last 90 days, too, and the reviews that were recorded.
    """
    report = await client.get(org_path(slug, "audit", "evidence"))
    clauses = [each | {"see": " ".join(each["shown"])} for each in report["clauses"]]
    columns = {"rule": "rule", "clause": "clause", "asks for": "asks", "see below": "see"}
    lines = [
        f"{name}: {_words(each)}"
        for name in dict.fromkeys(name for each in clauses for name in each["shown"])
        for each in (report[name] if isinstance(report[name], list) else [report[name]]) or [None]
    ]
    return CommandResult(report, lines, Table.of(f"Evidence of {slug}", clauses, columns))


def _words(found: object) -> str:
    if isinstance(found, dict):
        found = ", ".join(f"{name} {each}" for name, each in found.items() if each is not None)
    return str(found or "none")


@api_command(evidence, "export")
@with_filters
@click.option("--id", "ids", metavar="ID", multiple=True, help="This row; instead of filters.")
@output_options("Default: standard output.")
@click.option(
    "--older",
    "older_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A checkpoint that was kept: the bundle proves that nothing changed since.",
)
async def evidence_export(
    client: Client,
    /,  # `client` is a filter, too
    slug: str,
    path: Path,
    ids: tuple[str, ...],
    *,
    is_forced: bool,
    older_path: Path | None,
    **filters: Any,  # noqa: ANN401 - click's own values
) -> CommandResult:
    """Write a bundle of rows with their proofs, keys and policy, to verify without this service.

    At most 10,000 rows; `evidence verify` verifies it. Rows that are newer than the last
    checkpoint are left out, and counted.
    """
    parameters = as_parameters(filters)
    parse_query(parameters)
    if ids and parameters:
        raise click.UsageError("--id and filters exclude each other")
    checkpoint = await client.get(org_path(slug, "audit", "checkpoint"))
    older = None if older_path is None else await _consistency(client, slug, older_path, checkpoint)
    signed, newer = sorted({*ids}), 0
    if not ids:
        signed, newer = await _ids(client, slug, parameters, checkpoint["last_id"])
    if not signed:
        raise NO_ROWS
    with new_file(path, is_forced=is_forced) as file, TemporaryFile() as bundle:
        rows = await _proven(client, slug, signed, checkpoint["size"])
        note = Note.parse(checkpoint["note"])
        write_bundle(bundle, rows, note, _policy_of(checkpoint), older)
        bundle.seek(0)
        shutil.copyfileobj(bundle, file)
    what = "1 row with its proof" if len(rows) == 1 else f"{len(rows):,} rows with their proofs"
    lines = [f"Wrote {what} to {path}."]
    lines += [f"Left out, as newer than the last checkpoint: {newer:,}."] if newer else []
    data = {
        "org": slug,
        "path": str(path),
        "rows": len(rows),
        "newer": newer,
        "size": checkpoint["size"],
    }
    return CommandResult(data, lines, is_on_stderr=path == STANDARD_OUTPUT)


async def _consistency(client: Client, slug: str, path: Path, checkpoint: dict[str, Any]) -> str:
    """The proof that the log of the older checkpoint in `path` begins that of `checkpoint`."""
    note, older = read_checkpoint(path)
    if older.origin != checkpoint["origin"]:
        raise Invalid(f"{path} is of another log: {older.origin}")
    sizes = {"old": older.size, "new": checkpoint["size"]}
    said = await client.get(org_path(slug, "audit", "consistency"), sizes)
    return consistency_text(older.size, map(base64.b64decode, said["hashes"]), str(note))


def _policy_of(checkpoint: dict[str, Any]) -> str:
    signers = {name for name, _, _ in Note.parse(checkpoint["note"]).signed_by()}
    return policy_text(checkpoint["keys"], checkpoint["witnesses"], signers)


async def _ids(
    client: Client, slug: str, parameters: dict[str, list[str]], last_id: str
) -> tuple[list[str], int]:
    """The ids of the rows up to `last_id`, in order; how many are newer. Raises TOO_MANY_ROWS."""
    query = parameters | {"limit": [str(PAGE_ROWS)]}
    entries = await client.all_pages(org_path(slug, "audit"), "entries", query, BUNDLE_ROWS_MAX)
    ids = [entry["id"] for entry in entries]
    if len(ids) > BUNDLE_ROWS_MAX:
        raise TOO_MANY_ROWS
    signed = sorted(audit_id for audit_id in ids if audit_id <= last_id)
    return signed, len(ids) - len(signed)


async def _proven(client: Client, slug: str, ids: list[str], size: int) -> list[ProvenRow]:
    async def prove(audit_id: str) -> ProvenRow:
        said = await client.get(org_path(slug, "audit", audit_id, "proof"), {"size": size})
        return ProvenRow(audit_id, said["entry"].encode(), said["proof"])

    rows: list[ProvenRow] = []
    with row_progress(f"Proving {slug}") as show:
        for start in range(0, len(ids), AT_ONCE):
            rows += await asyncio.gather(*map(prove, ids[start : start + AT_ONCE]))
            show(len(rows), len(ids))
    return rows
