"""`countersign bindings replace`: a binding and its successor in one step."""

from typing import Any

import click
import msgspec

from service.cli.answers import Answer
from service.cli.bindings import bindings
from service.cli.context import CommandContext, command, org_option
from service.core.exit_codes import WrongUsage
from service.store.organisations import get_project
from service.store.tables import Origin
from service.trust.bindings.bindings_api import ReplacedBinding
from service.trust.bindings.changes import replace_binding


@command(bindings, "replace", changes=True)
@click.argument("binding_id")
@org_option
@click.option("--issuer", metavar="URL", help="The tokens' issuer.")
@click.option("--sub", "sub_pattern", help="The full sub claim; no wildcards.")
@click.option("--repository-id", metavar="ID", help="Numeric repository id.")
@click.option("--event", "events", multiple=True, help="Allowed event name; replaces the list.")
@click.option("--any-event", is_flag=True, help="Allow any event.")
@click.option("--project", metavar="PROJECT", help="Limit to a project's API keys (id or name).")
@click.option("--any-project", is_flag=True, help="Do not limit it to a project.")
@click.option("--reason", help="Why; stored with the replaced binding.")
async def bindings_replace(
    context: CommandContext,
    binding_id: str,
    slug: str,
    issuer: str | None,
    sub_pattern: str | None,
    repository_id: str | None,
    events: tuple[str, ...],
    project: str | None,
    reason: str | None,
    *,
    any_event: bool,
    any_project: bool,
) -> Answer:
    """Revoke a binding and create its successor in one step.

    What is not given is taken over: events, project, team and origin. At no moment are jobs
    untrusted that both bindings trust.
    """
    if (events and any_event) or (project is not None and any_project):
        raise WrongUsage(
            "give either --event or --any-event, and either --project or --any-project"
        )
    given = {"issuer": issuer, "sub_pattern": sub_pattern, "repository_id": repository_id}
    body: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if events or any_event:
        body["event_names"] = list(events)
    async with context.change(slug) as (work, org):
        if project is not None:
            body["project_id"] = (await get_project(work.session, org, project)).id
        elif any_project:
            body["project_id"] = None
        binding = await replace_binding(
            work,
            org,
            binding_id,
            {**body, "reason": reason},
            context.operator,
            context.services.issuers,
            origins=frozenset(Origin),
        )
    replaced = ReplacedBinding.of(binding, replaces=binding_id)
    form = {"org": slug, **msgspec.to_builtins(replaced)}
    return Answer(form, [f"{binding.id} of {slug} replaces {binding_id}."])
