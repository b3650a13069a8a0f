"""`countersign bindings`: the operator's access to the bindings of any organisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import parse_since
from service.bindings.changes import add_binding, revoke_binding
from service.bindings.forms import listed_form
from service.bindings.repository import (
    BindingState,
    list_bindings,
    list_by_repository,
)
from service.bindings.rules import parse_repository_id
from service.cli.context import Answer, CommandContext, command, org_option, table
from service.errors import Invalid, NotFound
from service.orgs.repository import get_org, get_org_by_id, get_project
from service.store.tables import Binding, Organisation, Origin
from service.text_rules import parse_reason

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
    context: CommandContext,
    slug: str,
    issuer: str,
    sub: str,
    repository_id: str | None,
    events: tuple[str, ...],
    project: str | None,
) -> Answer:
    """Trust a CI identity on behalf of the platform.

    The binding's origin is platform_admin.
    """
    services = context.services
    async with context.change(slug) as (work, org):
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
            context.operator,
            services.issuers,
            origins=frozenset({Origin.PLATFORM_ADMIN}),
        )
    return Answer(_form(slug, binding), [f"{slug} now trusts {sub}: {binding.id}"])


@command(bindings, "list")
@click.option("--org", "slug", metavar="SLUG", help="One organisation's bindings.")
@click.option("--repository-id", metavar="ID", help="A repository's, in all organisations.")
@click.option(
    "--state",
    type=click.Choice([state.value for state in BindingState]),
    help="Only in this state; default: both with --org, active otherwise or with --as-of.",
)
@click.option("--as-of", metavar="INSTANT", help="At an instant such as 2026-01-31T08:00:00Z.")
async def bindings_list(
    context: CommandContext,
    slug: str | None,
    repository_id: str | None,
    state: str | None,
    as_of: str | None,
) -> Answer:
    """List the bindings of an organisation or of a repository."""
    if (slug is None) == (repository_id is None):
        raise Invalid("give either --org or --repository-id")
    wanted, instant = BindingState(state) if state else None, _instant(as_of)
    async with context.services.store.read() as session:
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
@click.argument("binding_id", required=False)
@click.option("--org", "slug", metavar="SLUG", help="The organisation.")
@click.option("--repository-id", metavar="ID", help="All bindings of this repository.")
@click.option("--issuer", metavar="URL", help="The repository's issuer; ids differ by issuer.")
@click.option("--all-orgs", is_flag=True, help="The repository's bindings in every organisation.")
@click.option("--reason", help="Why; stored with each binding.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
async def bindings_revoke(
    context: CommandContext,
    binding_id: str | None,
    slug: str | None,
    repository_id: str | None,
    issuer: str | None,
    reason: str | None,
    *,
    all_orgs: bool,
    is_sure: bool,
) -> Answer:
    """Revoke one binding, or all of a repository.

    The latter is for a compromised repository. It lists the bindings and asks for confirmation.
    """
    why = parse_reason(reason)
    if binding_id is not None and repository_id is None and slug is not None:
        async with context.change(slug) as (work, org):
            await revoke_binding(work, org, binding_id, why, context.operator)
        return _revoked([(slug, binding_id)])
    if repository_id is None or binding_id is not None:
        raise Invalid("give --org and BINDING_ID, or --repository-id with --issuer")
    if issuer is None:
        raise Invalid("--repository-id needs --issuer: two issuers may use the same id")
    if all_orgs == (slug is not None):
        raise Invalid("--repository-id needs either --org or --all-orgs")
    wanted = _Repository(parse_repository_id(repository_id), issuer, slug)
    async with context.services.store.read() as session:
        listed = await wanted.active(session)
    if not is_sure:
        _confirm(listed)
    async with context.services.store.write() as work:
        # Exactly the bindings that were listed.
        if [form["id"] for _, form in await wanted.active(work.session)] != [
            form["id"] for _, form in listed
        ]:
            raise Invalid("the bindings of the repository were changed concurrently: try again")
        for org, form in listed:
            await revoke_binding(work, org, form["id"], why, context.operator)
    return _revoked([(org.slug, form["id"]) for org, form in listed])


@dataclass(frozen=True, slots=True)
class _Repository:
    """A repository of an issuer, in the organisation `slug` or in all."""

    repository_id: str
    issuer: str
    slug: str | None

    async def active(self, session: AsyncSession) -> list[tuple[Organisation, dict[str, Any]]]:
        """Its active bindings, each with its organisation. Raises NotFound if there are none."""
        only = None if self.slug is None else await get_org(session, self.slug)
        found = []
        for binding in await list_by_repository(session, self.repository_id):
            if binding.issuer == self.issuer and (only is None or binding.tenant_id == only.id):
                org = await get_org_by_id(session, binding.tenant_id)
                found.append((org, _form(org.slug, binding)))
        if not found:
            # Most likely a typo, which must not look like success during an incident.
            where = "any organisation" if self.slug is None else self.slug
            raise NotFound(
                f"no active binding of repository {self.repository_id} of {self.issuer} in {where}"
            )
        return found


def _confirm(listed: Sequence[tuple[Organisation, dict[str, Any]]]) -> None:
    """List the bindings to revoke on standard error; end the command unless confirmed."""
    for org, form in listed:
        click.echo(f"{form['id']} of {org.slug}: {form['subPattern']}", err=True)
    noun = "binding" if len(listed) == 1 else "bindings"
    click.confirm(f"Revoke {len(listed)} {noun}?", abort=True, err=True)


def _revoked(bindings: Sequence[tuple[str, str]]) -> Answer:
    lines = [f"Revoked {binding_id} of {slug}." for slug, binding_id in bindings]
    return Answer({"revoked": [binding_id for _, binding_id in bindings]}, lines)


def _form(slug: str, binding: Binding) -> dict[str, Any]:
    return {"org": slug, **msgspec.to_builtins(listed_form(binding))}


def _table(forms: Sequence[dict[str, Any]]) -> Any:  # noqa: ANN401 - a rich table
    return table("Bindings", _COLUMNS, [[form[column] for column in _COLUMNS] for form in forms])


def _instant(text: str | None) -> Any:  # noqa: ANN401
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise Invalid("--as-of must be a date or an RFC 3339 instant") from error
