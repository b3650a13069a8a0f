"""`countersign bindings sync`: bindings as declared in a file, by a plan that is shown first."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from service.cli.asking import confirm, yes_option
from service.cli.bindings import bindings
from service.cli.client import Client, JsonObject, drop_none, org_path, rephrased
from service.cli.commands import api_command
from service.cli.files import read_toml
from service.cli.output import CommandResult, printable
from service.core.exit_codes import ExitCode, WrongUsage

_SIGNS: Final = {"create": "+", "replace": "~", "revoke": "-"}


@api_command(bindings, "sync", changes=True)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
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
