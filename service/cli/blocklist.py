"""`countersign blocklist`: advisories that block installs in every organisation."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from analytics.model.ecosystems import Ecosystem
from service.cli.asking import confirm, yes_option
from service.cli.client import Client, JsonObject, QueryParameters, drop_none, org_path, path_of
from service.cli.commands import api_command
from service.cli.files import READ_PATH
from service.cli.output import CommandResult, Table, printable
from service.cli.progress import byte_progress
from service.cli.root import root
from service.core.errors import Invalid, NotFound
from service.core.exit_codes import ExitCode
from service.packages.policy.blocklist_api import MALICIOUS
from service.packages.policy.blocklist_contents import OSV
from service.packages.policy.sbom import SBOM_BYTES_MAX

_PATH: Final = "/api/v1/operator/blocklist"
_COLUMNS: Final = {
    "state": "state",
    "imported": "imported_at",
    "feed": "feed",
    "file": "file",
    "ids": "ids",
    "records": "records",
    "advisories": "advisories",
    "unreadable": "unreadable",
}
_AFFECTED: Final = ("org", "rule_id", "source", "installs", "runs", "first_at", "last_at")
_CHANGES: Final = ("ecosystem", "before", "after", "added", "removed", "changed")


@root.group("blocklist")
def blocklist() -> None:
    """The blocklist: known malicious releases, for all organisations."""


@api_command(blocklist, "import", changes=True, needs_org=False)
@click.argument("file", type=READ_PATH)
@click.option(
    "--feed",
    default=OSV,
    show_default=True,
    metavar="NAME",
    help="Whose records they are; those of other feeds stay.",
)
@click.option(
    "--ids",
    multiple=True,
    default=(MALICIOUS,),
    show_default=True,
    metavar="GLOB",
    help="Import the records with such ids; can be repeated.",
)
@click.option("--plan", "is_plan", is_flag=True, help="Show what would change; exit code 5 if any.")
@yes_option
async def blocklist_import(
    client: Client, file: Path, feed: str, ids: tuple[str, ...], *, is_plan: bool, is_sure: bool
) -> CommandResult:
    """Replace a feed's part of the blocklist by FILE, OSV's bulk format (a zip).

    Replaced are the records of the feed with such ids, of the ecosystems that FILE is about. A loss
    of more than a tenth of an ecosystem's asks for confirmation. Withdrawn records are left out. A
    record that cannot be read is named, and the exit code is 4 then; what an earlier import said
    under its id stays. All that was in force stays in force until the new list is complete.
    """
    asked = drop_none(file=file.name, feed=feed, ids=ids)
    done = await _sent(client, file, asked | {"is_plan": "true"} if is_plan else asked)
    if not is_plan and not done["is_in_force"]:
        lost = " and ".join(
            f"{change['removed']} of {change['before']} advisories of {ecosystem}"
            for ecosystem, change in done["ecosystems"].items()
            if change["is_loss"]
        )
        question = f"The import would remove {lost}: import it?"
        confirm(question, is_sure=is_sure, shown=_table(done).lines())
        done = await _sent(client, file, asked | {"accept_loss": "true"})
    code = ExitCode.INCOMPLETE if done["unreadable"] else ExitCode.DONE
    if is_plan and not done["is_unchanged"]:
        code = ExitCode.CHANGES
    return CommandResult(
        done, _lines(done), _table(done) if done["ecosystems"] else None, code=code
    )


async def _sent(client: Client, file: Path, parameters: QueryParameters) -> JsonObject:
    """The outcome of importing `file`, which is sent once more to be compared if it is asked."""
    with byte_progress(f"Sending {file.name}") as show:
        return await client.upload(f"{_PATH}/imports", file, "application/zip", parameters, show)


def _table(done: JsonObject) -> Table:
    rows = [{"ecosystem": name} | change for name, change in done["ecosystems"].items()]
    return Table.of(f"Advisories of the feed {done['feed']}", rows, _CHANGES)


def _lines(done: JsonObject) -> list[str]:
    if not done["ecosystems"]:
        return [f"Nothing to change: this file is in force ({done['advisories']} advisories)."]
    outcome = "Nothing was changed: this is a plan."
    if done["is_unchanged"]:
        outcome = "Nothing to change: all of this is in force."
    elif done["is_in_force"]:
        outcome = f"In force, after {done['seconds']:.1f} s."
    lines = [
        outcome,
        f"Left out: {done['withdrawn']} withdrawn, {done['other']} other records,"
        f" {done['unreadable']} unreadable.",
    ]
    listed = done["unreadable_records"]
    lines += [f"  {each['name']}: {each['error']}" for each in listed]
    if done["unreadable"] > len(listed):
        lines.append(f"  and {done['unreadable'] - len(listed)} more")
    return lines


@api_command(blocklist, "remove", changes=True, needs_org=False)
@click.option("--feed", required=True, metavar="NAME", help="The feed.")
@yes_option
async def blocklist_remove(client: Client, feed: str, *, is_sure: bool) -> CommandResult:
    """Remove all of a feed from the blocklist, such as one that is no longer imported."""
    feeds = [entry for entry in (await client.get(_PATH))["feeds"] if entry["feed"] == feed]
    if feeds:  # else the request is refused
        count = sum(entry["advisories"] for entry in feeds)
        question = f"Remove the feed {feed}, which blocks releases by {count} advisories?"
        table = Table.of(f"Advisories of the feed {feed}", feeds, ["ecosystem", "advisories"])
        confirm(question, is_sure=is_sure, shown=table.lines())
    removed = await client.delete(path_of(_PATH, "feeds", feed))
    count = sum(removed["removed"].values())
    return CommandResult(removed, [f"Removed the feed {feed}: {count} advisories."])


@api_command(blocklist, "status", needs_org=False)
async def blocklist_status(client: Client) -> CommandResult:
    """Show what is in force of each feed, and the last imports."""
    shown = await client.get(_PATH)
    listed = [row | {"ids": " ".join(row["ids"])} for row in shown["imports"]]
    return CommandResult(
        shown,
        list(feed_lines(shown["feeds"])),
        Table.of("Imports", listed, _COLUMNS, ["imported"]) if listed else None,
    )


@api_command(blocklist, "check", needs_org=False)
@click.argument("file", type=READ_PATH)
async def blocklist_check(client: Client, file: Path) -> CommandResult:
    """Compare FILE, a software bill of materials (CycloneDX, JSON), with the blocklist.

    The exit code is 1 if the blocklist names any of its packages.
    """
    compared = await client.post(f"{_PATH}/check", _read_bill(file))
    findings = compared["findings"]
    lines = [
        f"{len(findings)} of {compared['compared']} packages are on the blocklist."
        f" Other components, which were not compared: {compared['others']}.",
        *(
            f"  {finding['ecosystem']}:{finding['package']} {printable(finding['version'])}:"
            f" {', '.join(finding['advisories'])}"
            for finding in findings
        ),
    ]
    return CommandResult(compared, lines, code=ExitCode.FAILED if findings else ExitCode.DONE)


def _read_bill(file: Path) -> bytes:
    if file.stat().st_size > SBOM_BYTES_MAX:
        raise Invalid(f"{file.name} must have at most {SBOM_BYTES_MAX >> 20} MiB")
    return file.read_bytes()


@api_command(blocklist, "affected", needs_org=False)
@click.argument("rule_id", metavar="[ID]", required=False)
@click.option("--org", "slug", metavar="SLUG", help="Of this organisation alone.")
async def blocklist_affected(
    client: Client, rule_id: str | None, slug: str | None
) -> CommandResult:
    """Show the past installs that the advisory or deny rule ID would have blocked.

    Or those of a release that its registry withdrew: withdrawn:npm:left-pad@1.0.0. Without ID,
    what was found when it was new. Without --org of all organisations, which needs the admin token.
    """
    listed = [] if slug else (await client.get("/api/v1/operator/orgs"))["organisations"]
    slugs = [slug] if slug else [org["slug"] for org in listed]
    if rule_id is None:
        asked = {"event": "installs_matched"}
        pages = [await client.get(org_path(each, "audit"), asked) for each in slugs]
        orgs = [page | {"affected": [row["payload"] for row in page["entries"]]} for page in pages]
    else:
        orgs = [await client.get(org_path(each, "affected", rule_id)) for each in slugs]
        if not any(each["is_in_force"] for each in orgs):
            raise NotFound(f"no advisory, deny rule or withdrawn release has the id {rule_id}")
    rows = [{"org": each["org"]} | line for each in orgs for line in each["affected"]]
    table = Table.of("Affected installs", rows, _AFFECTED, ["first_at", "last_at"])
    return CommandResult({"orgs": orgs}, [], table)


def feed_lines(feeds: Sequence[JsonObject]) -> Iterator[str]:
    """One line for each feed, and for each ecosystem without any."""
    yield from map(_feed_line, feeds)
    missing = [str(e) for e in Ecosystem if e not in {feed["ecosystem"] for feed in feeds}]
    if missing:
        names = " and ".join(missing)
        yield f"No blocklist for {names}: `countersign blocklist import FILE.zip`."


def _feed_line(feed: dict[str, Any]) -> str:
    text = (
        f"Blocklist {feed['feed']}, {feed['ecosystem']} ({' '.join(feed['ids'])}):"
        f" {feed['advisories']} advisories, imported {feed['imported_at']}"
    )
    if feed["modified_at"] is not None:
        text += f", newest change {feed['modified_at']}"
    return f"{text}. STALE: import a new archive." if feed["is_stale"] else f"{text}."
