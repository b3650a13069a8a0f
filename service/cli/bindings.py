"""`countersign bindings`: the platform's own hand on trust, in any organisation."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import parse_instant
from service.bindings.changes import add_binding, revoke_binding
from service.bindings.forms import listed_form
from service.bindings.repository import (
    BindingState,
    list_bindings,
    list_by_repository,
)
from service.bindings.rules import Origin, parse_reason, parse_repository_id
from service.cli.desk import Answer, Desk, command, org_option, table
from service.errors import Invalid, NotFound
from service.orgs.repository import get_org, get_org_by_id, get_project
from service.store.tables import Binding, Organisation

_COLUMNS = ["org", "id", "subPattern", "repositoryId", "origin", "addedBy", "addedAt", "revokedAt"]


@click.group()
def bindings() -> None:
    """Trust bindings: which CI jobs an organisation trusts."""


@command(bindings, "add")
@org_option
@click.option("--issuer", required=True, metavar="URL", help="The tokens' issuer.")
@click.option("--sub", required=True, help="The full sub claim; no wildcards.")
@click.option("--repository-id", metavar="ID", help="Numeric repository id.")
@click.option("--event", "events", multiple=True, help="Allowed event name; none means any.")
@click.option("--project", metavar="PROJECT", help="Limit to a project's API keys (id or name).")
async def bindings_add(
    desk: Desk,
    slug: str,
    issuer: str,
    sub: str,
    repository_id: str | None,
    events: tuple[str, ...],
    project: str | None,
) -> Answer:
    """Trust a CI identity on the platform's behalf.

    The binding's origin is platform_admin.
    """
    here = desk.services
    async with desk.change(slug) as (work, org):
        limit = None if project is None else await get_project(work.session, org, project)
        body = {
            "issuer": issuer,
            "sub_pattern": sub,
            "repository_id": repository_id,
            "event_names": list(events),
            "origin": Origin.PLATFORM_ADMIN.value,
            "project_id": limit.id if limit else None,
        }
        binding = await add_binding(
            work,
            org,
            body,
            desk.operator,
            here.issuers,
            origins=frozenset({Origin.PLATFORM_ADMIN}),
        )
    return Answer(_form(slug, binding), [f"{slug} now trusts {sub}: {binding.id}"])


@command(bindings, "list")
@click.option("--org", "slug", metavar="SLUG", help="One organisation's bindings.")
@click.option("--repository-id", metavar="ID", help="A repository's, in every organisation.")
@click.option(
    "--state",
    type=click.Choice([state.value for state in BindingState]),
    help="Only these; default with --org: both, otherwise or with --as-of: active.",
)
@click.option("--as-of", metavar="INSTANT", help="As they were then, such as 2026-01-31T08:00:00Z.")
async def bindings_list(
    desk: Desk, slug: str | None, repository_id: str | None, state: str | None, as_of: str | None
) -> Answer:
    """List the bindings of an organisation or of a repository."""
    if (slug is None) == (repository_id is None):
        raise Invalid("give either --org or --repository-id")
    wanted, instant = BindingState(state) if state else None, _instant(as_of)
    async with desk.services.store.read() as session:
        if repository_id is not None:
            found = await list_by_repository(
                session, parse_repository_id(repository_id), wanted or BindingState.ACTIVE, instant
            )
        else:
            org = await get_org(session, slug or "")
            found = await list_bindings(session, org.id, wanted, instant)
        slugs = {
            tenant_id: (await get_org_by_id(session, tenant_id)).slug
            for tenant_id in {binding.tenant_id for binding in found}
        }
    forms = [_form(slugs[binding.tenant_id], binding) for binding in found]
    return Answer(forms, table=_table(forms))


@command(bindings, "revoke")
@click.option("--org", "slug", metavar="SLUG", help="The organisation of BINDING_ID.")
@click.argument("binding_id", required=False)
@click.option("--repository-id", metavar="ID", help="All of a repository's, in every organisation.")
@click.option("--reason", help="Why; stored with the binding.")
async def bindings_revoke(
    desk: Desk,
    slug: str | None,
    binding_id: str | None,
    repository_id: str | None,
    reason: str | None,
) -> Answer:
    """Revoke one binding, or all of a repository's at once.

    The latter is for a repository that is compromised.
    """
    why = parse_reason(reason)
    async with desk.services.store.write() as work:
        if repository_id is not None and slug is None and binding_id is None:
            doomed = await _active_of(work.session, parse_repository_id(repository_id))
        elif slug is not None and binding_id is not None and repository_id is None:
            doomed = [(await get_org(work.session, slug), binding_id)]
        else:
            raise Invalid("give either --org and BINDING_ID, or --repository-id")
        for org, doomed_id in doomed:
            await revoke_binding(work, org, doomed_id, why, desk.operator)
    revoked = [doomed_id for _, doomed_id in doomed]
    return Answer({"revoked": revoked}, [f"Revoked {', '.join(revoked)}."])


async def _active_of(session: AsyncSession, repository_id: str) -> list[tuple[Organisation, str]]:
    """Each active binding's organisation and id. Raises NotFound when there is none."""
    found = await list_by_repository(session, repository_id)
    if not found:
        # Most likely a typing error, and whoever contains a breach must not take it for success.
        raise NotFound(f"no active binding of repository {repository_id}")
    return [(await get_org_by_id(session, binding.tenant_id), binding.id) for binding in found]


def _form(slug: str, binding: Binding) -> dict[str, Any]:
    return {"org": slug, **msgspec.to_builtins(listed_form(binding))}


def _table(forms: Sequence[dict[str, Any]]) -> Any:  # noqa: ANN401 - a rich table
    return table("Bindings", _COLUMNS, [[form[column] for column in _COLUMNS] for form in forms])


def _instant(text: str | None) -> Any:  # noqa: ANN401
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise Invalid("--as-of must be an RFC 3339 instant") from error
