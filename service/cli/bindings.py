"""`countersign bindings`: the trust bindings of an organisation, or the operator's of any."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from service.cli.answers import Answer
from service.cli.anywhere import anywhere_command
from service.cli.asking import confirm, has_terminal, yes_option
from service.cli.client import Client, Form, given, org_path
from service.cli.context import CommandContext
from service.cli.proposals import printable
from service.cli.root import root
from service.cli.tables import Table, padded
from service.cli.target import ORG_VARIABLE
from service.cli.times import INSTANT
from service.core.errors import Invalid, NotFound
from service.core.exit_codes import WrongUsage
from service.core.text_rules import parse_reason
from service.store.organisations import get_org, get_org_by_id
from service.store.tables import Binding, Organisation, Origin
from service.trust.bindings.bindings_api import ListedBinding
from service.trust.bindings.changes import revoke_binding
from service.trust.bindings.listing import parse_as_of
from service.trust.bindings.repository import BindingState, list_by_repository
from service.trust.bindings.rules import parse_repository_id

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
_LABEL_WIDTH: Final = 15
_ORG_HELP: Final = "The organisation; default: COUNTERSIGN_ORG, or that of the login."


@root.group("bindings")
def bindings() -> None:
    """Trust bindings: which CI jobs an organisation trusts."""


@anywhere_command(bindings, "add", changes=True)
@anywhere_command(bindings, "create", changes=True)
@click.option("--issuer", required=True, metavar="URL", help="The tokens' issuer.")
@click.option("--sub", required=True, help="The full sub claim; no wildcards.")
@click.option("--repository-id", metavar="ID", help="Numeric repository id.")
@click.option("--event", "events", multiple=True, help="Allowed event name; none means any.")
@click.option(
    "--project", metavar="PROJECT", help="Limit to a project's API keys (id; locally also name)."
)
@click.option("--team", metavar="TEAM", help="As a binding of this team (id), on a server.")
async def bindings_add(
    client: Client,
    slug: str,
    issuer: str,
    sub: str,
    repository_id: str | None,
    events: tuple[str, ...],
    project: str | None,
    team: str | None,
) -> Answer:
    """Trust a CI identity.

    On a server the binding is the organisation's (org_admin), or its team's. On a data dir it is
    the platform's (platform_admin).
    """
    body = given(
        issuer=issuer,
        sub_pattern=sub,
        repository_id=repository_id,
        event_names=events,
        origin=_origin(client, team).value,
        project_id=None if project is None else await client.project_id(slug, project),
        team_id=team,
    )
    form = await client.post(_path(slug), body)
    if client.context is not None:  # with all its fields
        form = await client.get(_path(slug, form["id"]))
    form = {"org": slug, **form}
    return Answer(form, [f"{slug} now trusts {sub}: {form['id']}"])


def _origin(client: Client, team: str | None) -> Origin:
    """On whose behalf a binding is created. Raises WrongUsage."""
    if client.context is None:
        return Origin.ORG_ADMIN if team is None else Origin.TEAM_ADMIN
    if team is not None:
        raise WrongUsage("a team's bindings are created by its admins, on a server")
    return Origin.PLATFORM_ADMIN


@anywhere_command(bindings, "list", needs_org=False)
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
) -> Answer:
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
    if slug is None:
        context = client.data_dir("bindings list --all-orgs")
        return _listed(await list_repository(context, str(repository_id), state, as_of), "")
    listed = await client.get(_path(slug), given(state=state, asOf=as_of))
    found = [{"org": slug, **form} for form in listed["bindings"]]
    if repository_id is not None:
        found = [form for form in found if form["repositoryId"] == repository_id.lstrip("0")]
    return _listed(found, client.at_place)


@anywhere_command(bindings, "show")
@click.argument("binding_id", metavar="ID")
async def bindings_show(client: Client, slug: str, binding_id: str) -> Answer:
    """Print one binding, active or revoked, with all its fields."""
    form = {"org": slug, **await client.get(_path(slug, binding_id))}
    lines = [
        f"{padded(name, _LABEL_WIDTH)}{printable(value)}"
        for name, value in form.items()
        if value is not None and value != []
    ]
    return Answer(form, lines)


@anywhere_command(bindings, "revoke", changes=True, needs_org=False)
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
) -> Answer:
    """Revoke one binding, or all of a repository.

    It asks for confirmation. Without a terminal, one binding is revoked at once. All of a
    repository, after its compromise, are listed first, and need --yes without a terminal.
    """
    if not all_orgs:
        slug = slug or await _default_org(client)
    if binding_id is not None and repository_id is None and slug is not None:
        if has_terminal():
            confirm(f"Revoke {binding_id} of {slug}?", is_sure=is_sure)
        await client.delete(_path(slug, binding_id), given(reason=reason))
        return revoked([(slug, binding_id)])
    if repository_id is None or binding_id is not None:
        raise WrongUsage("give --org and BINDING_ID, or --repository-id with --issuer")
    if issuer is None:
        raise WrongUsage("--repository-id needs --issuer: two issuers may use the same id")
    if all_orgs == (slug is not None):
        raise WrongUsage("--repository-id needs either --org or --all-orgs")

    context = client.data_dir("bindings revoke --repository-id")
    done = await revoke_repository(
        context,
        repository_id,
        issuer,
        slug,
        reason,
        confirm=lambda listed: _confirm_all(listed, is_sure=is_sure),
    )
    return revoked(done)


def _confirm_all(listed: Sequence[tuple[str, Form]], *, is_sure: bool) -> None:
    """List the bindings to revoke, and ask. Raises NotConfirmed."""
    shown = [f"{form['id']} of {slug}: {form['subPattern']}" for slug, form in listed]
    noun = "binding" if len(listed) == 1 else "bindings"
    confirm(f"Revoke {len(listed)} {noun}?", is_sure=is_sure, shown=shown)


def revoked(done: Sequence[tuple[str, str]]) -> Answer:
    """The answer for revoked bindings: each with the slug of its organisation."""
    lines = [f"Revoked {binding_id} of {slug}." for slug, binding_id in done]
    return Answer({"revoked": [binding_id for _, binding_id in done]}, lines)


async def _default_org(client: Client) -> str | None:
    """COUNTERSIGN_ORG, or that of the login."""
    return os.environ.get(ORG_VARIABLE) or await client.default_org()


def _listed(forms: list[Form], at_place: str) -> Answer:
    return Answer({"bindings": forms}, table=binding_table(f"Bindings{at_place}", forms))


def _form(slug: str, binding: Binding) -> Form:
    """A binding as the API's list has it, with its organisation."""
    return {"org": slug, **msgspec.to_builtins(ListedBinding.of(binding))}


def _path(slug: str, *parts: str) -> str:
    return org_path(slug, "oidc-bindings", *parts)


def binding_table(title: str, forms: Sequence[dict[str, Any]]) -> Table:
    """Bindings for people."""
    return Table.of(title, forms, _COLUMNS, _TIMES)


async def list_repository(
    context: CommandContext, repository_id: str, state: str | None, as_of: str | None
) -> list[Form]:
    """Its bindings in all organisations; by default the active ones."""
    wanted = BindingState(state) if state else BindingState.ACTIVE
    instant = parse_as_of(as_of)
    async with context.services.store.read() as session:
        bindings = await list_by_repository(
            session, parse_repository_id(repository_id), wanted, instant
        )
        slugs = {
            tenant_id: (await get_org_by_id(session, tenant_id)).slug
            for tenant_id in {binding.tenant_id for binding in bindings}
        }
    return [_form(slugs[binding.tenant_id], binding) for binding in bindings]


async def revoke_repository(
    context: CommandContext,
    repository_id: str,
    issuer: str,
    slug: str | None,
    reason: str | None,
    *,
    confirm: Callable[[Sequence[tuple[str, Form]]], None],
) -> list[tuple[str, str]]:
    """Revoke its active bindings, in the organisation `slug` or in all, once `confirm` returns.

    Returns the slug and the id of each. Raises NotFound if there are none, Invalid if they were
    changed concurrently.
    """
    why = parse_reason(reason)
    wanted = _Repository(parse_repository_id(repository_id), issuer, slug)
    async with context.services.store.read() as session:
        listed = await wanted.active(session)
    confirm([(org.slug, form) for org, form in listed])
    async with context.services.store.write() as work:
        # Exactly the bindings that were listed.
        if [form["id"] for _, form in await wanted.active(work.session)] != [
            form["id"] for _, form in listed
        ]:
            raise Invalid("the bindings of the repository were changed concurrently: try again")
        for org, form in listed:
            await revoke_binding(work, org, form["id"], why, context.operator)
    return [(org.slug, form["id"]) for org, form in listed]


@dataclass(frozen=True, slots=True)
class _Repository:
    """A repository of an issuer, in the organisation `slug` or in all."""

    repository_id: str
    issuer: str
    slug: str | None

    async def active(self, session: AsyncSession) -> list[tuple[Organisation, Form]]:
        """Its active bindings, each with its organisation. Raises NotFound if there are none."""
        only = None if self.slug is None else await get_org(session, self.slug)
        bindings = []
        for binding in await list_by_repository(session, self.repository_id):
            if binding.issuer == self.issuer and (only is None or binding.tenant_id == only.id):
                org = await get_org_by_id(session, binding.tenant_id)
                bindings.append((org, _form(org.slug, binding)))
        if not bindings:
            # Most likely a typo, which must not look like success during an incident.
            where = "any organisation" if self.slug is None else self.slug
            raise NotFound(
                f"no active binding of repository {self.repository_id} of {self.issuer} in {where}"
            )
        return bindings
