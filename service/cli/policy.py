"""`countersign policy`: what an organisation's builds may install, and exceptions."""

import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click

from analytics.model.ecosystems import Ecosystem
from service.cli.asking import confirm, yes_option
from service.cli.client import Client, JsonObject, drop_none, org_path
from service.cli.commands import CURSOR, api_command
from service.cli.files import READ_PATH
from service.cli.output import CommandResult, Table, more_lines, printable
from service.cli.root import root
from service.core.errors import Invalid, Refusal
from service.core.exit_codes import ExitCode
from service.packages.policy.check import parse_release
from service.packages.policy.document import parse_policy, to_json
from service.packages.policy.model import NO_POLICY, InstallPolicy, PolicyDifference, difference
from service.packages.refusals import REVISION_NOT_FOUND


@root.group("policy")
def policy() -> None:
    """Install policies: which packages an organisation's builds may install."""


@api_command(policy, "show")
@click.option("--revision", type=click.IntRange(min=1), help="An older revision.")
async def policy_show(client: Client, slug: str, revision: int | None) -> CommandResult:
    """Show the policy in force. With --json its `policy` can be changed and set again."""
    try:
        answer = await client.get(org_path(slug, "policy"), drop_none(revision=revision))
    except Refusal as refusal:
        if REVISION_NOT_FOUND.text not in {refusal.text, getattr(refusal, "code", None)}:
            raise
        raise Invalid(f"{slug} has no revision {revision} of its policy") from refusal
    if answer["revision"] == 0:
        lines = [f"{slug} has no policy: the blocklist alone is in force."]
    else:
        lines = [
            f"Revision {answer['revision']}, by {answer['changed_by']} on {answer['changed_at']}:",
            *_policy_lines(_policy_of(answer)),
        ]
    return CommandResult(answer, lines)


@api_command(policy, "set", changes=True)
@click.argument("file", type=READ_PATH)
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
    client: Client,
    slug: str,
    file: Path,
    revision: int | None,
    *,
    dry_run: bool,
    may_be_empty: bool,
    is_sure: bool,
) -> CommandResult:
    """Replace the policy by the one in FILE (TOML, or JSON if its name ends with .json).

    Shows what changes against the policy in force, and asks.
    """
    wanted = read_policy(file)
    if not dry_run and not may_be_empty and replace(wanted, mode=NO_POLICY.mode) == NO_POLICY:
        raise Invalid(f"{file.name} has no rule: add --empty to be left without any")
    path = org_path(slug, "policy")
    shown = await client.get(path)
    before = _policy_of(shown)
    changes = difference(before, wanted)
    document = to_json(wanted)
    if dry_run:
        return _previewed(await client.post(org_path(slug, "policy", "preview"), document), changes)
    if before != wanted:
        question = f"Replace the policy of {slug}?"
        confirm(question, is_sure=is_sure, shown=_difference_lines(changes))
        if revision is None:
            revision = shown["revision"]  # the one that the answer is about
    replaced = {"if-match": "*" if revision is None else f'"{revision}"'}
    answer = await client.put(path, document, replaced)
    data = answer | {"is_changed": before != wanted, "difference": asdict(changes)}
    if before == wanted:
        return CommandResult(data, ["Nothing to change."])
    lines = _difference_lines(changes) if is_sure else []
    return CommandResult(data, [*lines, f"Revision {answer['revision']} is in force."])


def _difference_lines(changes: PolicyDifference) -> list[str]:
    """What is taken out of the policy (-), and what is added (+)."""
    lines = []
    for sign, parts in (("-", changes.before), ("+", changes.after)):
        lines += [f"  {sign} {part}: {printable(entry)}" for part in parts for entry in parts[part]]
    return [*lines, f"  and {changes.omitted} more"] if changes.omitted else lines


def _previewed(answer: JsonObject, changes: PolicyDifference) -> CommandResult:
    lines = [*_difference_lines(changes), answer["summary"]]
    lines += [
        f"  {entry['ecosystem']}:{entry['package']} {entry['installs']}"
        for entry in answer["top_packages"]
    ]
    lines += [f"  {printable(entry['name'])} {entry['installs']}" for entry in answer["top_jobs"]]
    if answer["first_party"]:
        lines.append(
            f"{answer['first_party']} installs would have to come from an internal registry."
        )
    if answer["undated"]:
        lines.append(
            f"{answer['undated']} installs would be subject to the cooldown: it is not known when"
            " their releases were published."
        )
    if answer["distrusted"]:
        lines.append(
            f"{answer['distrusted']} installs would be subject to the trust rule: their rows do not"
            " have what the registry said."
        )
    if answer["maybe_cured"]:
        lines.append(f"{answer['maybe_cured']} of the blocked installs might have been the cure.")
    return CommandResult(answer | {"difference": asdict(changes)}, lines)


@api_command(policy, "check")
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
    client: Client,
    slug: str,
    ecosystem: str,
    package: str,
    release_version: str | None,
    published: str | None,
) -> CommandResult:
    """Tell whether PACKAGE would be allowed: `pypi requests==2.32.3`, `npm left-pad@1.3.0`.

    The exit code is 1 if it would be refused.
    """
    try:
        parse_release(ecosystem, package, release_version, published)
    except Invalid as error:
        raise Invalid(_of_options(error.text)) from error
    asked = drop_none(
        ecosystem=ecosystem, package=package, version=release_version, published_at=published
    )
    answer = await client.post(org_path(slug, "policy", "check"), asked)
    said = answer["decision"] or "depends on its age"
    is_served = answer["decision"] == "BLOCKED" and not answer["is_refused"]
    note = " (audit mode: it is served)" if is_served else ""
    return CommandResult(
        answer,
        [
            f"{answer['package']} {printable(answer['version'])}: {said}{note}",
            f"  {printable(_of_options(answer['reason']))}",
        ],
        code=ExitCode.FAILED if answer["is_refused"] else ExitCode.DONE,
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


def _policy_of(answer: JsonObject) -> InstallPolicy:
    """The policy in an answer. Raises ValueError if it is none, for `expected_answers`."""
    try:
        return parse_policy(answer["policy"])
    except Invalid as error:
        raise ValueError("policy") from error


def _policy_lines(shown: InstallPolicy) -> list[str]:
    parts = difference(NO_POLICY, shown).after
    lines = [f"mode: {shown.mode}"]
    for part, entries in parts.items():
        if part != "mode":
            lines += [f"{part}:", *(f"  {printable(entry)}" for entry in entries)]
    return lines


STATES: Final = ("open", "allowed", "declined")
_COLUMNS: Final = (
    "id",
    "state",
    "ecosystem",
    "package",
    "version",
    "reason",
    "requested_by",
    "requested_at",
)
_TIMES: Final = ("requested_at",)


@policy.group("exceptions")
def exceptions() -> None:
    """Exceptions: releases to be let through before their cooldown ends."""


@api_command(exceptions, "list")
@click.option("--state", type=click.Choice(STATES), help="Only in this state; default: all.")
@click.option("--limit", type=click.IntRange(min=1, max=500), help="At most so many.")
@CURSOR
async def exceptions_list(
    client: Client, slug: str, state: str | None, limit: int | None, cursor: str | None
) -> CommandResult:
    """List what members asked for, newest first."""
    asked = drop_none(state=state, limit=limit, cursor=cursor or None)
    page = await client.get(_path(slug), asked)
    table = Table.of(f"Exceptions{client.at_place}", page["exceptions"], _COLUMNS, _TIMES)
    return CommandResult(page, more_lines(page), table)


@api_command(exceptions, "allow", changes=True)
@click.argument("exception_id", metavar="ID")
@click.option("--reason", help="Why; stored with the decision.")
async def exceptions_allow(
    client: Client, slug: str, exception_id: str, reason: str | None
) -> CommandResult:
    """Let the release of a request through: an allow rule under the request's id."""
    answer = await _decide(client, slug, exception_id, "allow", reason)
    said = f"{answer['package']} {answer['version']} no longer waits for its cooldown in {slug}."
    return CommandResult(answer, [said])


@api_command(exceptions, "decline", changes=True)
@click.argument("exception_id", metavar="ID")
@click.option("--reason", help="Why; stored with the decision.")
async def exceptions_decline(
    client: Client, slug: str, exception_id: str, reason: str | None
) -> CommandResult:
    """Decline a request; the policy stays as it is."""
    answer = await _decide(client, slug, exception_id, "decline", reason)
    return CommandResult(answer, [f"Declined: {answer['package']} {answer['version']}."])


async def _decide(
    client: Client, slug: str, exception_id: str, decision: str, reason: str | None
) -> JsonObject:
    path = _path(slug, exception_id, "decide")
    return await client.post(path, drop_none(decision=decision, reason=reason))


def _path(slug: str, *parts: str) -> str:
    return org_path(slug, "policy", "exceptions", *parts)
