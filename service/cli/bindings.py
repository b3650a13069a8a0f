"""`countersign bindings`: the trust bindings of an organisation, or the operator's of any."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from service.cli.asking import confirm, has_terminal, yes_option
from service.cli.client import Client, JsonObject, QueryParameters, drop_none, org_path, rephrased
from service.cli.commands import api_command
from service.cli.files import READ_PATH, read_toml
from service.cli.output import CommandResult, Table, padded, printable
from service.cli.root import root
from service.cli.target import ORG_VARIABLE
from service.cli.times import INSTANT
from service.core.errors import NotFound
from service.core.exit_codes import ExitCode, WrongUsage

_COLUMNS: Final = (
    "id",
    "subPattern",
    "repositoryId",
    "origin",
    "addedAt",
    "revokedAt",
    "addedBy",
    "org",
)
_TIMES: Final = ("addedAt", "revokedAt")
_ALL_ORGS: Final = "/api/v1/operator/bindings"
_LABEL_WIDTH: Final = 15
_ORG_HELP: Final = "The organisation; default: COUNTERSIGN_ORG, or that of the login."


_condition_option: Final = click.option(
    "--condition",
    "conditions",
    multiple=True,
    metavar="CLAIM=VALUE",
    help="A claim that tokens must have besides, such as environment=production.",
)


@root.group("bindings")
def bindings() -> None:
    """Trust bindings: which CI jobs an organisation trusts."""


@api_command(bindings, "add", changes=True)
@api_command(bindings, "create", changes=True)
@click.option("--issuer", required=True, metavar="URL", help="The tokens' issuer.")
@click.option("--sub", required=True, help="The full sub claim; no wildcards.")
@click.option("--repository-id", metavar="ID", help="Numeric repository id.")
@click.option("--event", "events", multiple=True, help="Allowed event name; none means any.")
@click.option("--project", metavar="PROJECT", help="Limit to a project's API keys (id or name).")
@click.option("--team", metavar="TEAM", help="As a binding of this team (id), on a server.")
@_condition_option
async def bindings_add(
    client: Client,
    slug: str,
    issuer: str,
    sub: str,
    repository_id: str | None,
    events: tuple[str, ...],
    project: str | None,
    team: str | None,
    conditions: tuple[str, ...],
) -> CommandResult:
    """Trust a CI identity.

    On a server the binding is the organisation's (org_admin), or its team's. On a data dir it is
    the platform's (platform_admin).
    """
    body = drop_none(
        issuer=issuer,
        sub_pattern=sub,
        repository_id=repository_id,
        event_names=events,
        origin=_origin(client, team),
        project_id=None if project is None else await client.project_id(slug, project),
        team_id=team,
        conditions=_conditions(conditions) or None,
    )
    created = await client.post(_path(slug), body)
    binding = {"org": slug, **await client.get(_path(slug, created["id"]))}  # with all its fields
    return CommandResult(binding, [f"{slug} now trusts {sub}: {binding['id']}"])


def _conditions(given: tuple[str, ...]) -> dict[str, str]:
    """The conditions in options of the form CLAIM=VALUE. Raises WrongUsage."""
    pairs = [each.partition("=") for each in given]
    if not all(separator for _, separator, _ in pairs):
        raise WrongUsage("--condition must be CLAIM=VALUE, such as environment=production")
    conditions = {claim: value for claim, _, value in pairs}
    if len(conditions) < len(pairs):
        raise WrongUsage("--condition names a claim twice: a token has one value of it")
    return conditions


def _origin(client: Client, team: str | None) -> str:
    """The `origin` of a binding that is created. Raises WrongUsage."""
    if not client.is_local:
        return "org_admin" if team is None else "team_admin"
    if team is not None:
        raise WrongUsage("a team's bindings are created by its admins, on a server")
    return "platform_admin"


@api_command(bindings, "list", needs_org=False)
@click.option("--org", "slug", metavar="SLUG", help=_ORG_HELP)
@click.option("--all-orgs", is_flag=True, help="Those of a repository in every organisation.")
@click.option("--repository-id", metavar="ID", help="Only those of this repository.")
@click.option(
    "--state",
    type=click.Choice(["active", "revoked"]),
    help="Only in this state; default: both, active for a repository or with --as-of.",
)
@click.option(
    "--as-of",
    metavar="INSTANT",
    type=INSTANT,
    help="At an instant such as 2026-01-31T08:00:00Z; 7d is that long ago.",
)
async def bindings_list(
    client: Client,
    slug: str | None,
    repository_id: str | None,
    state: str | None,
    as_of: str | None,
    *,
    all_orgs: bool,
) -> CommandResult:
    """List the bindings of an organisation or of a repository.

    On a data dir a repository's are listed in every organisation, unless one is named.
    """
    if all_orgs and (repository_id is None or slug is not None):
        raise WrongUsage("--all-orgs goes with --repository-id, and without --org")
    if not all_orgs:
        slug = slug or await _default_org(client)
    if slug is None and repository_id is None:
        raise WrongUsage(f"give --org, --repository-id or {ORG_VARIABLE}")
    if repository_id is not None:
        state = state or "active"
    asked = drop_none(repository_id=repository_id, state=state, asOf=as_of)
    found = await _list(client, slug, asked)
    table = Table.of(f"Bindings{client.at_place}", found, _COLUMNS, _TIMES)
    return CommandResult({"bindings": found}, table=table)


@api_command(bindings, "show")
@click.argument("binding_id", metavar="ID")
async def bindings_show(client: Client, slug: str, binding_id: str) -> CommandResult:
    """Print one binding, active or revoked, with all its fields."""
    binding = {"org": slug, **await client.get(_path(slug, binding_id))}
    lines = [
        f"{padded(name, _LABEL_WIDTH)}{printable(value)}"
        for name, value in binding.items()
        if value is not None and value != []
    ]
    return CommandResult(binding, lines)


@api_command(bindings, "revoke", changes=True, needs_org=False)
@click.argument("binding_id", required=False)
@click.option("--org", "slug", metavar="SLUG", help=_ORG_HELP)
@click.option("--repository-id", metavar="ID", help="All bindings of this repository.")
@click.option("--issuer", metavar="URL", help="The repository's issuer; ids differ by issuer.")
@click.option("--all-orgs", is_flag=True, help="The repository's bindings in every organisation.")
@click.option("--reason", help="Why; stored with each binding.")
@yes_option
async def bindings_revoke(
    client: Client,
    binding_id: str | None,
    slug: str | None,
    repository_id: str | None,
    issuer: str | None,
    reason: str | None,
    *,
    all_orgs: bool,
    is_sure: bool,
) -> CommandResult:
    """Revoke one binding, or all of a repository.

    It asks for confirmation. Without a terminal, one binding is revoked at once. All of a
    repository, after its compromise, are listed first, and need --yes without a terminal.
    """
    if not all_orgs:
        slug = slug or await _default_org(client)
    if binding_id is not None and repository_id is None and slug is not None:
        if has_terminal():
            confirm(f"Revoke {binding_id} of {slug}?", is_sure=is_sure)
        await client.delete(_path(slug, binding_id), drop_none(reason=reason))
        return _revoked([(slug, binding_id)])
    if repository_id is None or binding_id is not None:
        raise WrongUsage("give --org and BINDING_ID, or --repository-id with --issuer")
    if issuer is None:
        raise WrongUsage("--repository-id needs --issuer: two issuers may use the same id")
    if all_orgs == (slug is not None):
        raise WrongUsage("--repository-id needs either --org or --all-orgs")

    active = await _active_of(client, slug, repository_id, issuer)
    shown = [f"{binding['id']} of {binding['org']}: {binding['subPattern']}" for binding in active]
    noun = "binding" if len(active) == 1 else "bindings"
    confirm(f"Revoke {len(active)} {noun}?", is_sure=is_sure, shown=shown)
    # Exactly the bindings that were listed.
    body = drop_none(
        issuer=issuer,
        repository_id=repository_id,
        reason=reason,
        binding_ids=[binding["id"] for binding in active],
    )
    await client.post(f"{_ALL_ORGS}/revoke" if slug is None else _path(slug, "revoke"), body)
    return _revoked([(binding["org"], binding["id"]) for binding in active])


async def _list(client: Client, slug: str | None, asked: QueryParameters) -> list[JsonObject]:
    """The bindings that are asked for, each with its organisation; without `slug`, of all."""
    if slug is None:
        found: list[JsonObject] = (await client.get(_ALL_ORGS, asked))["bindings"]
        return found
    listed = await client.get(_path(slug), asked)
    return [{"org": slug, **binding} for binding in listed["bindings"]]


async def _active_of(
    client: Client, slug: str | None, repository_id: str, issuer: str
) -> list[JsonObject]:
    """The active bindings of a repository of `issuer`. Raises NotFound if there are none."""
    asked = drop_none(repository_id=repository_id, issuer=issuer, state="active")
    active = await _list(client, slug, asked)
    if not active:
        # Most likely a typo, which must not look like success during an incident.
        where = "any organisation" if slug is None else slug
        number = repository_id.lstrip("0")
        raise NotFound(f"no active binding of repository {number} of {issuer} in {where}")
    return active


def _revoked(done: Sequence[tuple[str, str]]) -> CommandResult:
    """The answer for revoked bindings: each with the slug of its organisation."""
    lines = [f"Revoked {binding_id} of {slug}." for slug, binding_id in done]
    return CommandResult({"revoked": [binding_id for _, binding_id in done]}, lines)


@api_command(bindings, "replace", changes=True)
@click.argument("binding_id")
@click.option("--issuer", metavar="URL", help="The tokens' issuer.")
@click.option("--sub", "sub_pattern", help="The full sub claim; no wildcards.")
@click.option("--repository-id", metavar="ID", help="Numeric repository id.")
@click.option("--event", "events", multiple=True, help="Allowed event name; replaces the list.")
@click.option("--any-event", is_flag=True, help="Allow any event.")
@click.option("--project", metavar="PROJECT", help="Limit to a project's API keys (id or name).")
@click.option("--any-project", is_flag=True, help="Do not limit it to a project.")
@_condition_option
@click.option("--no-conditions", is_flag=True, help="Drop all conditions.")
@click.option("--reason", help="Why; stored with the replaced binding.")
async def bindings_replace(
    client: Client,
    slug: str,
    binding_id: str,
    issuer: str | None,
    sub_pattern: str | None,
    repository_id: str | None,
    events: tuple[str, ...],
    project: str | None,
    reason: str | None,
    *,
    any_event: bool,
    any_project: bool,
    conditions: tuple[str, ...],
    no_conditions: bool,
) -> CommandResult:
    """Revoke a binding and create its successor in one step.

    What is not given is taken over: events, conditions, project, team and origin. At no
    moment are jobs untrusted that both bindings trust.
    """
    if (events and any_event) or (project is not None and any_project):
        raise WrongUsage(
            "give either --event or --any-event, and either --project or --any-project"
        )
    if conditions and no_conditions:
        raise WrongUsage("give either --condition or --no-conditions")
    body = drop_none(
        issuer=issuer, sub_pattern=sub_pattern, repository_id=repository_id, reason=reason
    )
    if events or any_event:
        body["event_names"] = list(events)
    if conditions or no_conditions:
        body["conditions"] = _conditions(conditions)
    if project is not None or any_project:
        body["project_id"] = None if project is None else await client.project_id(slug, project)
    binding = {"org": slug, **await client.post(_path(slug, binding_id, "replace"), body)}
    return CommandResult(binding, [f"{binding['id']} of {slug} replaces {binding_id}."])


@api_command(bindings, "advice")
async def bindings_advice(client: Client, slug: str) -> CommandResult:
    """List bindings that will fail soon, are looser than their use, or match no token."""
    found = await client.get(org_path(slug, "trust", "advice"))
    if not found["advice"]:
        return CommandResult(found, [f"Nothing to change about the bindings of {slug}."])
    columns = ("kind", "bindingId", "subPattern", "text")
    return CommandResult(found, table=Table.of(f"Advice on {slug}", found["advice"], columns))


@api_command(bindings, "map")
async def bindings_map(client: Client, slug: str) -> CommandResult:
    """Show what each repository is trusted for, and what its bindings installed in 30 days."""
    found = await client.get(org_path(slug, "trust", "map"))
    rows = [
        {
            **each,
            "events": ", ".join(each["event_names"]) or "any",
            "may act for": _scope(each, slug),
            **(each["installs"] or {"allowed": None, "blocked": None}),
        }
        for each in found["bindings"]
    ]
    columns = ("repository", "job", "events", "may act for", "allowed", "blocked", "id")
    table = Table.of(f"Active bindings of {slug}, installs since {found['since']}", rows, columns)
    lines = []
    if more := found["binding_count"] - len(rows):
        lines.append(f"{more} more active bindings are not listed.")
    for what, installs in (("without a binding", "unbound"), ("of other bindings", "elsewhere")):
        if found[installs] is not None:
            lines.append(f"{found[installs]['allowed']} installs {what}")
    return CommandResult(found, lines, table)


def _scope(binding: JsonObject, slug: str) -> str:
    """What a binding may act for."""
    if binding["team"] is not None:
        return f"team {binding['team']}"
    return f"all of {slug}" if binding["project"] is None else f"project {binding['project']}"


async def _default_org(client: Client) -> str | None:
    """COUNTERSIGN_ORG, or that of the login."""
    return os.environ.get(ORG_VARIABLE) or await client.default_org()


def _path(slug: str, *parts: str) -> str:
    return org_path(slug, "oidc-bindings", *parts)


_SIGNS: Final = {"create": "+", "replace": "~", "revoke": "-"}


@api_command(bindings, "sync", changes=True)
@click.argument("file", type=READ_PATH)
@click.option("--prune", "has_prune", is_flag=True, help="Revoke active bindings not in FILE.")
@click.option("--plan", "is_plan", is_flag=True, help="Show the plan; exit code 5 if not empty.")
@click.option("--reason", help="Why; stored with each binding that is revoked or replaced.")
@yes_option
async def bindings_sync(
    client: Client,
    slug: str,
    file: Path,
    reason: str | None,
    *,
    has_prune: bool,
    is_plan: bool,
    is_sure: bool,
) -> CommandResult:
    """Make an organisation's bindings match FILE (TOML).

    Shows what would be created (+), replaced (~) and revoked (-), asks, and applies all of it in
    one transaction. It is refused if the bindings were changed in between. Bindings that FILE
    does not name stay, unless --prune is given.

    \b
    issuer = "https://token.actions.githubusercontent.com"
    [[bindings]]
    sub_pattern = "repo:acme/payments:ref:refs/heads/main"
    repository_id = "123456789"
    event_names = ["push"]
    project = "payments"
    """  # noqa: D301 - click reads the backspace
    if is_plan and is_sure:
        raise WrongUsage("give either --plan or --yes")
    with rephrased(lambda text: f"{file.name}: {text}"):
        declared = {**read_toml(file), "has_prune": has_prune}
        plan = await client.post(org_path(slug, "oidc-bindings", "sync", "plan"), declared)
    lines = list(_plan_lines(slug, file, plan))
    if is_plan or not plan["actions"]:
        return CommandResult(
            plan, lines, code=ExitCode.CHANGES if plan["actions"] else ExitCode.DONE
        )
    confirm(f"Apply these changes to the bindings of {slug}?", is_sure=is_sure, shown=lines)
    body = declared | drop_none(plan=plan["plan"], reason=reason)
    done = await client.post(org_path(slug, "oidc-bindings", "sync"), body)
    count = len(done["actions"])
    said = f"Applied {count} change{'s' if count != 1 else ''}."
    return CommandResult(done, [*(lines if is_sure else ()), said])


def _plan_lines(slug: str, file: Path, plan: JsonObject) -> Iterator[str]:
    actions, unchanged = plan["actions"], plan["unchanged"]
    if actions:
        yield f"Plan for {slug} by {file.name}:"
    else:
        yield f"No changes: {unchanged} bindings of {slug} are as in {file.name}."
    for action in actions:
        yield f"  {_SIGNS[action['action']]} {_words(action)}"
    if actions:
        counted = Counter(action["action"] for action in actions)
        counts = [f"{counted[kind]} to {kind}" for kind in _SIGNS if counted[kind]]
        yield f"{', '.join(counts)}; {unchanged} unchanged."
    if plan["unmanaged"]:
        yield f"{plan['unmanaged']} active, not in {file.name}: they stay (--prune revokes them)."


def _words(action: JsonObject) -> str:
    job = f"{printable(action['sub_pattern'])} ({action['repository_id'] or 'any id'})"
    if action["binding"] is None:
        return f"{action['action']} {job}"
    changes = "; ".join(
        f"{name}: {_value(change['from'])} → {_value(change['to'])}"
        for name, change in action["differences"].items()
    )
    return f"{action['action']} {action['binding']} {job}" + (f": {changes}" if changes else "")


def _value(value: Any) -> str:  # noqa: ANN401 - a field of a binding
    return printable(value) if value else "any"
