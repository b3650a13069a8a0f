"""`countersign policy`: what an organisation's builds may install."""

import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import msgspec

from service.audit.tenant_log import open_log
from service.cli.answers import Answer
from service.cli.asking import confirm, yes_option
from service.cli.context import CommandContext, command, org_option
from service.cli.proposals import printable
from service.cli.root import root
from service.core.errors import Invalid
from service.core.exit_codes import ExitCode
from service.packages.ecosystems import Ecosystem
from service.packages.policy.changes import set_policy
from service.packages.policy.check import check_release, parse_release
from service.packages.policy.differences import PolicyDifference, difference
from service.packages.policy.document import decode_document, parse_policy
from service.packages.policy.model import NO_POLICY, InstallPolicy
from service.packages.policy.policy_api import check_form, policy_form, preview_form
from service.packages.policy.preview import preview_policy
from service.packages.policy.repository import find_revision
from service.store.organisations import get_org
from service.store.tables import Organisation

_PREVIEW_MAX_S = 60.0


@root.group("policy")
def policy() -> None:
    """Install policies: which packages an organisation's builds may install."""


@command(policy, "show")
@org_option
@click.option("--revision", type=click.IntRange(min=1), help="An older revision.")
async def policy_show(context: CommandContext, slug: str, revision: int | None) -> Answer:
    """Show the policy in force. With --json its `policy` can be changed and set again."""
    async with context.services.store.read() as session:
        org = await get_org(session, slug)
        stored = await find_revision(session, org.id, revision)
    if stored is None and revision is not None:
        raise Invalid(f"{slug} has no revision {revision} of its policy", field="revision")
    form = policy_form(slug, stored)
    if stored is None:
        lines = [f"{slug} has no policy: the blocklist alone is in force."]
    else:
        lines = [
            f"Revision {form.revision}, by {form.changed_by} on {form.changed_at}:",
            *_policy_lines(decode_document(stored.document)),
        ]
    return Answer(msgspec.to_builtins(form), lines)


@command(policy, "set", changes=True)
@org_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--revision",
    type=click.IntRange(min=0),
    help="Only if this revision is in force (0: none), so that no change is overwritten.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what it changes, and what it would have done; change nothing.",
)
@click.option("--empty", "may_be_empty", is_flag=True, help="Take a FILE without any rule.")
@yes_option
async def policy_set(
    context: CommandContext,
    slug: str,
    file: Path,
    revision: int | None,
    *,
    dry_run: bool,
    may_be_empty: bool,
    is_sure: bool,
) -> Answer:
    """Replace the policy by the one in FILE (TOML, or JSON if its name ends with .json).

    Shows what changes against the policy in force, and asks.
    """
    wanted = read_policy(file)
    if not dry_run and not may_be_empty and replace(wanted, mode=NO_POLICY.mode) == NO_POLICY:
        raise Invalid(f"{file.name} has no rule: add --empty to be left without any")
    async with context.services.store.read() as session:
        org = await get_org(session, slug)
        shown = await find_revision(session, org.id)
    before = NO_POLICY if shown is None else decode_document(shown.document)
    changes = difference(before, wanted)
    if dry_run:
        return await _preview(context, org, wanted, changes)
    if before != wanted:
        question = f"Replace the policy of {slug}?"
        confirm(question, is_sure=is_sure, shown=_difference_lines(changes))
        if revision is None:
            revision = 0 if shown is None else shown.revision  # the one that the answer is about
    async with context.change(slug) as (work, org):
        changed = await set_policy(work, org, wanted, context.audit_context, replaces=revision)
    form = policy_form(slug, changed)
    data = msgspec.to_builtins(form) | {
        "is_changed": before != wanted,
        "difference": asdict(changes),
    }
    if before == wanted:
        return Answer(data, ["Nothing to change."])
    lines = _difference_lines(changes) if is_sure else []
    return Answer(data, [*lines, f"Revision {form.revision} is in force."])


def _difference_lines(changes: PolicyDifference) -> list[str]:
    """What is taken out of the policy (-), and what is added (+)."""
    lines = []
    for sign, parts in (("-", changes.before), ("+", changes.after)):
        lines += [f"  {sign} {part}: {printable(entry)}" for part in parts for entry in parts[part]]
    return [*lines, f"  and {changes.omitted} more"] if changes.omitted else lines


async def _preview(
    context: CommandContext, org: Organisation, wanted: InstallPolicy, changes: PolicyDifference
) -> Answer:
    services, now = context.services, context.services.clock()
    log = await open_log(services.store, services.lake, org, now)
    previewed = await preview_policy(
        log, wanted, services.release_dates, services.worker, now, _PREVIEW_MAX_S
    )
    form = preview_form(org.slug, previewed)
    lines = [*_difference_lines(changes), form.summary]
    lines += [
        f"  {entry.ecosystem}:{entry.package} {entry.installs}" for entry in form.top_packages
    ]
    lines += [f"  {printable(entry.name)} {entry.installs}" for entry in form.top_jobs]
    if form.first_party:
        lines.append(f"{form.first_party} installs would have to come from an internal registry.")
    if form.undated:
        lines.append(
            f"{form.undated} installs would be subject to the cooldown: it is not known when their"
            " releases were published."
        )
    return Answer(msgspec.to_builtins(form) | {"difference": asdict(changes)}, lines)


@command(policy, "check")
@org_option
@click.argument("ecosystem", type=click.Choice([str(ecosystem) for ecosystem in Ecosystem]))
@click.argument("package")
@click.option("--version", "release_version", help="The version, if PACKAGE does not have it.")
@click.option(
    "--published-at",
    "--published",
    "published",
    metavar="INSTANT",
    help="When it was published, for the cooldown.",
)
async def policy_check(
    context: CommandContext,
    slug: str,
    ecosystem: str,
    package: str,
    release_version: str | None,
    published: str | None,
) -> Answer:
    """Tell whether PACKAGE would be allowed: `pypi requests==2.32.3`, `npm left-pad@1.3.0`.

    The exit code is 1 if it would be refused.
    """
    try:
        release = parse_release(ecosystem, package, release_version, published)
    except Invalid as error:
        raise Invalid(_of_options(error.text)) from error
    services = context.services
    async with services.store.read() as session:
        org = await get_org(session, slug)
    found = await services.policy_book.of(org, release.ecosystem, release.name)
    form = check_form(slug, check_release(found, release, services.clock()), found.mode)
    said = form.decision or "depends on its age"
    note = (
        " (audit mode: it is served)" if form.decision == "BLOCKED" and not form.is_refused else ""
    )
    return Answer(
        msgspec.to_builtins(form),
        [
            f"{form.package} {printable(form.version)}: {said}{note}",
            f"  {printable(_of_options(form.reason))}",
        ],
        code=ExitCode.FAILED if form.is_refused else ExitCode.DONE,
    )


def _of_options(text: str) -> str:
    """`text` of the API with the option in place of the field."""
    return text.replace("published_at", "--published-at")


def read_policy(file: Path) -> InstallPolicy:
    """The policy in `file`. Raises Invalid, which names the file and the field."""
    try:
        text = file.read_text()
        document: Any = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        return parse_policy(document)
    except (ValueError, RecursionError, Invalid) as error:
        raise Invalid(f"{file.name}: {error}") from error


def _policy_lines(shown: InstallPolicy) -> list[str]:
    parts = difference(NO_POLICY, shown).after
    lines = [f"mode: {shown.mode}"]
    for part, entries in parts.items():
        if part != "mode":
            lines += [f"{part}:", *(f"  {printable(entry)}" for entry in entries)]
    return lines
