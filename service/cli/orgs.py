"""`countersign org`, `project` and `team`."""

from typing import get_args

import click

from analytics.model.instants import format_ms
from analytics.model.org_envelopes import IdentityProviderName
from analytics.model.retention import RETENTION_DAYS, Tier
from service.access.roles import Capability, Role
from service.cli.answers import Answer
from service.cli.anywhere import anywhere_command
from service.cli.client import Client, given, operator_path
from service.cli.context import CommandContext, command, org_option
from service.cli.root import root
from service.cli.tables import Table
from service.orgs.domains import list_domains
from service.orgs.projects import create_project
from service.orgs.roles import set_role_override
from service.orgs.teams import create_team, set_team_admin
from service.store.organisations import (
    get_member,
    get_org,
    get_team,
    list_projects,
    list_team_offices,
    list_teams,
)

_TIERS = click.Choice([tier.value for tier in Tier])


@root.group("org")
def org() -> None:
    """Organisations: the tenants of this service."""


@anywhere_command(org, "add", changes=True, needs_org=False)
@click.argument("slug")
@click.option(
    "--tier",
    type=_TIERS,
    default=Tier.ORG.value,
    show_default=True,
    help="Determines how far back its audit log can be read.",
)
async def org_add(client: Client, slug: str, tier: str) -> Answer:
    """Create the organisation SLUG."""
    created = await client.post(operator_path(), given(slug=slug, tier=tier))
    return Answer(created, [f"Created {slug} ({tier})."])


@anywhere_command(org, "list", needs_org=False)
async def org_list(client: Client) -> Answer:
    """List all organisations."""
    listed = await client.get(operator_path())
    columns = {
        "slug": "slug",
        "tier": "tier",
        "retention (days)": "days",
        "held since": "held_since",
        "held for": "held_reason",
        "id": "id",
    }
    rows = [row | {"days": RETENTION_DAYS[Tier(row["tier"])]} for row in listed["organisations"]]
    return Answer(listed, table=Table.of(f"Organisations{client.at_place}", rows, columns))


@anywhere_command(org, "set-tier", changes=True, needs_org=False)
@click.argument("slug")
@click.argument("tier", type=_TIERS)
async def org_set_tier(client: Client, slug: str, tier: str) -> Answer:
    """Move SLUG to another TIER.

    How far back its audit log can be read changes immediately.
    """
    moved = await client.put(operator_path(slug, "tier"), given(tier=tier))
    return Answer(moved, [f"{slug} is in tier {tier}."])


@anywhere_command(org, "hold", changes=True, needs_org=False)
@click.argument("slug")
@click.option("--reason", required=True, help="The case or request; stored and audited.")
async def org_hold(client: Client, slug: str, reason: str) -> Answer:
    """Put SLUG under a legal hold.

    None of its rows are dropped until the hold is released. Rows past retention stay hidden; a
    higher tier shows them. Running this again replaces the reason, not the start of the hold.
    """
    held = await client.put(operator_path(slug, "hold"), given(reason=reason))
    line = f"{slug} is under legal hold since {held['held_since']}: {held['held_reason']}"
    return Answer(held, [line])


@anywhere_command(org, "release", changes=True, needs_org=False)
@click.argument("slug")
@click.option("--reason", help="The reason; audited.")
async def org_release(client: Client, slug: str, reason: str | None) -> Answer:
    """Release SLUG from its legal hold.

    The next pruning run drops what is past retention by then.
    """
    released = await client.delete(operator_path(slug, "hold"), given(reason=reason))
    return Answer(released, [f"{slug} is not under legal hold."])


@command(org, "grant", changes=True)
@click.argument("slug")
@click.argument("role", type=click.Choice([role.value for role in Role]))
@click.argument(
    "capabilities",
    nargs=-1,
    metavar="[CAPABILITY]...",
    type=click.Choice([capability.value for capability in Capability]),
)
async def org_grant(
    context: CommandContext, slug: str, role: str, capabilities: tuple[str, ...]
) -> Answer:
    """Grant CAPABILITIES to ROLE in SLUG beyond its defaults.

    CAPABILITIES, such as audit:r, replace its earlier grants; without any only the defaults remain.
    The error about an unknown one lists all of them.
    """
    async with context.change(slug) as (work, found):
        await set_role_override(work, found, role, capabilities, context.audit_context)
    granted = sorted(capabilities)
    return Answer(
        {"slug": slug, "role": role, "capabilities": granted},
        [f"{role} in {slug}: {', '.join(granted) or 'defaults only'}."],
    )


@anywhere_command(org, "allow-domain", changes=True, needs_org=False)
@click.argument("slug")
@click.argument("domain")
@click.option(
    "--idp",
    type=click.Choice(get_args(IdentityProviderName)),
    required=True,
    help="The identity provider that vouches for the address.",
)
@click.option("--remove", is_flag=True, help="Require invitations again; members stay.")
async def org_allow_domain(
    client: Client, slug: str, domain: str, idp: str, *, remove: bool
) -> Answer:
    """Let users of DOMAIN sign in to SLUG without an invitation.

    A user who signs in with a verified address of it for the first time becomes a member, with
    the role member. Removed members cannot sign in this way.
    """
    rule = await client.post(
        operator_path(slug, "domains"), given(domain=domain, idp=idp, is_allowed=not remove)
    )
    need = "need" if remove else "do not need"
    line = f"Users of {rule['domain']} {need} an invitation to sign in to {slug} with {idp}."
    return Answer(rule, [line])


@command(org, "domains")
@click.argument("slug")
async def org_domains(context: CommandContext, slug: str) -> Answer:
    """List the domains whose users need no invitation to SLUG."""
    async with context.services.store.read() as session:
        domains = await list_domains(session, await get_org(session, slug))
    rows = [
        {
            "domain": domain.domain,
            "idp": domain.identity_provider,
            "added_at": format_ms(domain.added_at),
        }
        for domain in domains
    ]
    columns = {"domain": "domain", "idp": "idp", "since": "added_at"}
    return Answer({"domains": rows}, table=Table.of(f"Domains of {slug}", rows, columns))


@root.group("project")
def project() -> None:
    """Projects: what bindings and API keys can be limited to."""


@command(project, "add", changes=True)
@org_option
@click.argument("name")
async def project_add(context: CommandContext, slug: str, name: str) -> Answer:
    """Create the project NAME."""
    async with context.change(slug) as (work, found):
        created = await create_project(work, found, name, context.audit_context)
    return Answer({"id": created.id, "name": name}, [f"Created project {name}: {created.id}"])


@command(project, "list")
@org_option
async def project_list(context: CommandContext, slug: str) -> Answer:
    """List the organisation's projects."""
    async with context.services.store.read() as session:
        projects = await list_projects(session, await get_org(session, slug))
    rows = [{"id": project.id, "name": project.name} for project in projects]
    return Answer({"projects": rows}, table=Table.of(f"Projects of {slug}", rows, ["name", "id"]))


@root.group("team")
def team() -> None:
    """Teams: groups of members that can have their own bindings."""


@command(team, "add", changes=True)
@org_option
@click.argument("name")
async def team_add(context: CommandContext, slug: str, name: str) -> Answer:
    """Create the team NAME."""
    async with context.change(slug) as (work, found):
        created = await create_team(work, found, name, context.audit_context)
    return Answer({"id": created.id, "name": name}, [f"Created team {name}: {created.id}"])


@command(team, "list")
@org_option
async def team_list(context: CommandContext, slug: str) -> Answer:
    """List the organisation's teams and who administers them."""
    async with context.services.store.read() as session:
        found_org = await get_org(session, slug)
        teams = await list_teams(session, found_org)
        admins: dict[str, list[str]] = {team.id: [] for team in teams}
        for found, person in await list_team_offices(session, found_org):
            admins[found.id].append(person.email)
    rows = [{"id": team.id, "name": team.name, "admins": admins[team.id]} for team in teams]
    return Answer(
        {"teams": rows}, table=Table.of(f"Teams of {slug}", rows, ["name", "admins", "id"])
    )


@command(team, "set-admin", changes=True)
@org_option
@click.argument("name")
@click.argument("member")
@click.option("--remove", is_flag=True, help="Remove the admin instead.")
async def team_set_admin(
    context: CommandContext, slug: str, name: str, member: str, *, remove: bool
) -> Answer:
    """Make MEMBER (id or email) an admin of the team NAME (or id)."""
    async with context.change(slug) as (work, found):
        chosen = await get_team(work.session, found, name)
        person = await get_member(work.session, found, member)
        await set_team_admin(work, chosen, person, context.audit_context, is_admin=not remove)
    return Answer(
        {"team": chosen.id, "member": person.id, "is_admin": not remove},
        [f"{person.email} {'no longer administers' if remove else 'administers'} {chosen.name}."],
    )
