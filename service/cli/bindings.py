"""`countersign bindings`: the trust bindings of an organisation, or the operator's of any."""

import os
from collections.abc import Sequence
from typing import Any, Final

import click

from service.cli.answers import Answer
from service.cli.anywhere import anywhere_command
from service.cli.asking import confirm, has_terminal, yes_option
from service.cli.backend import Backend, BindingDraft, Form
from service.cli.proposals import printable
from service.cli.root import root
from service.cli.tables import Table, padded
from service.cli.target import ORG_VARIABLE
from service.cli.times import INSTANT
from service.core.exit_codes import WrongUsage

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
    backend: Backend,
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
    draft = BindingDraft(
        issuer=issuer,
        sub_pattern=sub,
        repository_id=repository_id,
        event_names=events,
        project=project,
        team=team,
    )
    form = await backend.create_binding(slug, draft)
    return Answer(form, [f"{slug} now trusts {sub}: {form['id']}"])


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
    backend: Backend,
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
        slug = slug or await _default_org(backend)
    if slug is None and repository_id is None:
        raise WrongUsage(f"give --org, --repository-id or {ORG_VARIABLE}")
    if repository_id is not None:
        state = state or "active"
    if slug is None:
        from service.cli.binding_repositories import list_repository

        context = backend.data_dir("bindings list --all-orgs")
        return _listed(await list_repository(context, str(repository_id), state, as_of), None)
    found = await backend.list_bindings(slug, state, as_of)
    if repository_id is not None:
        found = [form for form in found if form["repositoryId"] == repository_id.lstrip("0")]
    return _listed(found, backend.place)


@anywhere_command(bindings, "show")
@click.argument("binding_id", metavar="ID")
async def bindings_show(backend: Backend, slug: str, binding_id: str) -> Answer:
    """Print one binding, active or revoked, with all its fields."""
    form = await backend.get_binding(slug, binding_id)
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
    backend: Backend,
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
        slug = slug or await _default_org(backend)
    if binding_id is not None and repository_id is None and slug is not None:
        if has_terminal():
            confirm(f"Revoke {binding_id} of {slug}?", is_sure=is_sure)
        await backend.revoke_binding(slug, binding_id, reason)
        return revoked([(slug, binding_id)])
    if repository_id is None or binding_id is not None:
        raise WrongUsage("give --org and BINDING_ID, or --repository-id with --issuer")
    if issuer is None:
        raise WrongUsage("--repository-id needs --issuer: two issuers may use the same id")
    if all_orgs == (slug is not None):
        raise WrongUsage("--repository-id needs either --org or --all-orgs")
    from service.cli.binding_repositories import revoke_repository

    context = backend.data_dir("bindings revoke --repository-id")
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


async def _default_org(backend: Backend) -> str | None:
    """COUNTERSIGN_ORG, or that of the login."""
    return os.environ.get(ORG_VARIABLE) or await backend.default_org()


def _listed(forms: list[Form], place: str | None) -> Answer:
    title = "Bindings" if place is None else f"Bindings at {place}"
    return Answer({"bindings": forms}, table=binding_table(title, forms))


def binding_table(title: str, forms: Sequence[dict[str, Any]]) -> Table:
    """Bindings for people."""
    return Table.of(title, forms, _COLUMNS, _TIMES)
