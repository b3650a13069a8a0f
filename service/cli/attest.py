"""`countersign attest`: signed statements on admitted packages, and their verification."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from service.cli.client import Client, drop_none, org_path
from service.cli.commands import CURSOR, CommandPlace, api_command, declare
from service.cli.evidence import key_option, log_keys
from service.cli.files import READ_PATH, STANDARD_OUTPUT, new_file, output_options
from service.cli.output import CommandResult, Table, more_lines
from service.cli.root import root
from service.core.errors import NotFound
from service.core.exit_codes import ExitCode

_LIMIT: Final = 100
_PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_COLUMNS: Final = {
    "id": "id",
    "created": "created_at",
    "ecosystem": "ecosystem",
    "package": "package",
    "version": "version",
    "no statement": "missing",
}
_REPOSITORY: Final = click.option(
    "--repository-id", help="The repository of the run: a run's id is unique within one."
)


class _Subject(msgspec.Struct):
    uri: str
    digest: dict[str, str]


class _Statement(msgspec.Struct):
    subject: list[_Subject]


@root.group("attest")
def attest() -> None:
    """Signed statements on the packages that the install proxy admitted."""


@api_command(attest, "list")
@click.option("--run", "run_id", help="Of this CI run.")
@_REPOSITORY
@click.option("--limit", type=click.IntRange(1, _LIMIT), help="Installs on a page; default 100.")
@CURSOR
async def attest_list(client: Client, /, slug: str, **given: Any) -> CommandResult:  # noqa: ANN401
    """List allowed installs, the oldest first, and which of them have no statement."""
    page = await client.get(org_path(slug, "installs", "attestations"), drop_none(**given))
    table = Table.of(f"Installs{client.at_place}", page["installs"], _COLUMNS, ["created"])
    return CommandResult(page, more_lines(page), table)


@api_command(attest, "show")
@click.argument("audit_id")
async def attest_show(client: Client, slug: str, audit_id: str) -> CommandResult:
    """Show the statement on the package that an install admitted; --json prints it signed."""
    envelope = await client.get(org_path(slug, "installs", audit_id, "attestation"))
    statement = json.loads(base64.b64decode(envelope["payload"]))
    return CommandResult(envelope, json.dumps(statement, indent=2).splitlines())


@api_command(attest, "bundle")
@click.option("--run", "run_id", required=True, help="The CI run.")
@_REPOSITORY
@output_options("The bundle, such as run.intoto.jsonl; - is standard output.", is_required=True)
async def attest_bundle(
    client: Client, /, slug: str, path: Path, *, is_forced: bool, **run: str | None
) -> CommandResult:
    """Write the statements on all packages of a CI run: in-toto's bundle, one a line.

    What the run installed and has no statement is listed.
    """
    installs = await client.all_pages(
        org_path(slug, "installs", "attestations"), "installs", drop_none(limit=_LIMIT, **run)
    )
    if not installs:
        raise NotFound(f"no install of run {run['run_id']} was allowed")
    statements = [each["statement"] for each in installs if each["statement"] is not None]
    with new_file(path, is_forced=is_forced) as file:
        file.writelines(json.dumps(each).encode() + b"\n" for each in statements)
    missing = [each for each in installs if each["statement"] is None]
    said = [f"Wrote {len(statements)} statements to {path}; {len(missing)} installs have none."]
    said += [f"{each['id']} {each['package']}: {each['missing']}" for each in missing]
    data = {"path": str(path), "statements": len(statements), "missing": missing}
    return CommandResult(data, said, is_on_stderr=path == STANDARD_OUTPUT)


@declare(attest, "verify", place=CommandPlace.LOCAL)
@click.argument("bundle", type=READ_PATH)
@click.argument("files", nargs=-1, type=READ_PATH)
@key_option(is_required=True)
def attest_verify(bundle: Path, files: tuple[Path, ...], keys: tuple[str, ...]) -> CommandResult:
    """Verify the statements of BUNDLE, and that each of FILES is one of their packages.

    Needs no server and no data dir. Exit code 1: a statement is not signed by the keys, or no
    statement is about a file.
    """
    public = [key.public for key in log_keys(keys)]
    lines = bundle.read_bytes().splitlines()
    faults = [] if lines else [f"{bundle} is empty"]
    subjects: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines, start=1):
        try:
            for subject in _subjects(line, public):
                subjects |= dict.fromkeys(subject.digest.items(), subject.uri)
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    found = {str(file): _package_of(file, subjects) for file in files}
    faults += [f"{name}: no statement is about it" for name, uri in found.items() if uri is None]
    said = faults or [f"{len(lines)} statements are signed by the keys."]
    said += [f"{name}: {uri}" for name, uri in found.items() if uri is not None]
    data = {"statements": len(lines), "faults": faults, "files": found}
    return CommandResult(data, said, code=ExitCode.FAILED if faults else ExitCode.DONE)


def _subjects(line: bytes, keys: Sequence[bytes]) -> list[_Subject]:
    """What a statement is about. Raises ValueError."""
    from analytics.evidence.dsse import unseal

    return msgspec.json.decode(unseal(line, _PAYLOAD_TYPE, keys), type=_Statement).subject


def _package_of(file: Path, subjects: Mapping[tuple[str, str], str]) -> str | None:
    """The package URL of the statement about `file`."""
    with file.open("rb") as opened:
        for algorithm in ("sha512", "sha256", "sha1"):
            opened.seek(0)
            digest = hashlib.file_digest(opened, algorithm).hexdigest()
            if (algorithm, digest) in subjects:
                return subjects[algorithm, digest]
    return None
