"""`countersign org`, `project` and `team`."""

from pathlib import Path
from typing import get_args

import click

from analytics.model.retention import RETENTION_DAYS, Tier
from service.access.roles import Capability, Role
from service.cli.client import Client, JsonObject, drop_none, operator_path, org_path, rephrased
from service.cli.commands import api_command
from service.cli.files import READ_PATH, read_toml
from service.cli.output import CommandResult, Table
from service.cli.root import root
from service.core.settings import IdentityProviderName

_TIERS = click.Choice([tier.value for tier in Tier])


@root.group("org")
def org() -> None:
    """Organisations: the tenants of this service."""


@api_command(org, "add", changes=True, needs_org=False)
@click.argument("slug")
@click.option(
    "--tier",
    type=_TIERS,
    default=Tier.ORG.value,
    show_default=True,
    help="Determines how far back its audit log can be read.",
)
async def org_add(client: Client, slug: str, tier: str) -> CommandResult:
    """Create the organisation SLUG."""
    created = await client.post(operator_path(), drop_none(slug=slug, tier=tier))
    return CommandResult(created, [f"Created {slug} ({tier})."])


@api_command(org, "list", needs_org=False)
async def org_list(client: Client) -> CommandResult:
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
    return CommandResult(listed, table=Table.of(f"Organisations{client.at_place}", rows, columns))


@api_command(org, "set-tier", changes=True, needs_org=False)
@click.argument("slug")
@click.argument("tier", type=_TIERS)
async def org_set_tier(client: Client, slug: str, tier: str) -> CommandResult:
    """Move SLUG to another TIER.

    How far back its audit log can be read changes immediately.
    """
    moved = await client.put(operator_path(slug, "tier"), drop_none(tier=tier))
    return CommandResult(moved, [f"{slug} is in tier {tier}."])


@api_command(org, "hold", changes=True, needs_org=False)
@click.argument("slug")
@click.option("--reason", required=True, help="The case or request; stored and audited.")
async def org_hold(client: Client, slug: str, reason: str) -> CommandResult:
    """Put SLUG under a legal hold.

    None of its rows are dropped until the hold is released. Rows past retention stay hidden; a
    higher tier shows them. Running this again replaces the reason, not the start of the hold.
    """
    held = await client.put(operator_path(slug, "hold"), drop_none(reason=reason))
    line = f"{slug} is under legal hold since {held['held_since']}: {held['held_reason']}"
    return CommandResult(held, [line])


@api_command(org, "release", changes=True, needs_org=False)
@click.argument("slug")
@click.option("--reason", help="The reason; audited.")
async def org_release(client: Client, slug: str, reason: str | None) -> CommandResult:
    """Release SLUG from its legal hold.

    The next pruning run drops what is past retention by then.
    """
    released = await client.delete(operator_path(slug, "hold"), drop_none(reason=reason))
    return CommandResult(released, [f"{slug} is not under legal hold."])


@api_command(org, "grant", changes=True, needs_org=False)
@click.argument("slug")
@click.argument("role", type=click.Choice([role.value for role in Role]))
@click.argument(
    "capabilities",
    nargs=-1,
    metavar="[CAPABILITY]...",
    type=click.Choice([capability.value for capability in Capability]),
)
async def org_grant(
    client: Client, slug: str, role: str, capabilities: tuple[str, ...]
) -> CommandResult:
    """Grant CAPABILITIES to ROLE in SLUG beyond its defaults.

    CAPABILITIES, such as audit:r, replace its earlier grants; without any only the defaults remain.
    The error about an unknown one lists all of them.
    """
    path = org_path(slug, "roles", role)
    await client.put(path, {"capabilities": capabilities})
    granted = sorted(capabilities)
    return CommandResult(
        {"slug": slug, "role": role, "capabilities": granted},
        [f"{role} in {slug}: {', '.join(granted) or 'defaults only'}."],
    )


@api_command(org, "allow-domain", changes=True, needs_org=False)
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
) -> CommandResult:
    """Let users of DOMAIN sign in to SLUG without an invitation.

    A user who signs in with a verified address of it for the first time becomes a member, with
    the role member. Removed members cannot sign in this way.
    """
    rule = await client.post(
        operator_path(slug, "domains"), drop_none(domain=domain, idp=idp, is_allowed=not remove)
    )
    need = "need" if remove else "do not need"
    line = f"Users of {rule['domain']} {need} an invitation to sign in to {slug} with {idp}."
    return CommandResult(rule, [line])


@api_command(org, "domains", needs_org=False)
@click.argument("slug")
async def org_domains(client: Client, slug: str) -> CommandResult:
    """List the domains whose users need no invitation to SLUG."""
    rows = (await client.get(org_path(slug, "domains")))["domains"]
    columns = {"domain": "domain", "idp": "idp", "since": "added_at"}
    title = f"Domains of {slug}{client.at_place}"
    return CommandResult({"domains": rows}, table=Table.of(title, rows, columns))


@root.group("project")
def project() -> None:
    """Projects: what bindings and API keys can be limited to."""


@api_command(project, "add", changes=True)
@click.argument("name")
async def project_add(client: Client, slug: str, name: str) -> CommandResult:
    """Create the project NAME."""
    created = await client.post(org_path(slug, "projects"), drop_none(name=name))
    return CommandResult(_named(created), [f"Created project {name}: {created['id']}"])


@api_command(project, "list")
async def project_list(client: Client, slug: str) -> CommandResult:
    """List the organisation's projects."""
    rows = list(map(_named, await client.all_pages(org_path(slug, "projects"), "projects")))
    title = f"Projects of {slug}{client.at_place}"
    return CommandResult({"projects": rows}, table=Table.of(title, rows, ["name", "id"]))


def _named(entry: JsonObject) -> JsonObject:
    return {"id": entry["id"], "name": entry["name"]}


@root.group("team")
def team() -> None:
    """Teams: groups of members that can have their own bindings."""


@api_command(team, "add", changes=True)
@click.argument("name")
async def team_add(client: Client, slug: str, name: str) -> CommandResult:
    """Create the team NAME."""
    created = await client.post(org_path(slug, "teams"), drop_none(name=name))
    return CommandResult(_named(created), [f"Created team {name}: {created['id']}"])


@api_command(team, "list")
async def team_list(client: Client, slug: str) -> CommandResult:
    """List the organisation's teams and who administers them."""
    rows = [
        _named(team) | {"admins": [admin["email"] for admin in team["admins"]]}
        for team in await client.all_pages(org_path(slug, "teams"), "teams")
    ]
    title = f"Teams of {slug}{client.at_place}"
    return CommandResult({"teams": rows}, table=Table.of(title, rows, ["name", "admins", "id"]))


@api_command(team, "set-admin", changes=True)
@click.argument("name")
@click.argument("member")
@click.option("--remove", is_flag=True, help="Remove the admin instead.")
async def team_set_admin(
    client: Client, slug: str, name: str, member: str, *, remove: bool
) -> CommandResult:
    """Make MEMBER (id or email) an admin of the team NAME (or id)."""
    part = await client.part_of(org_path(slug, "teams"), "teams", name)
    if remove:
        person = await client.part_of(org_path(slug, "members"), "members", member)
        done = await client.delete(org_path(slug, "teams", part, "admins", person))
    else:
        done = await client.post(org_path(slug, "teams", part, "admins"), drop_none(member=member))
    verb = "no longer administers" if remove else "administers"
    data = {fact: done[fact] for fact in ("team", "member", "is_admin")}
    return CommandResult(data, [f"{done['email']} {verb} {done['name']}."])


@api_command(root, "apply", changes=True, needs_org=False)
@click.argument("file", type=READ_PATH)
async def apply_file(client: Client, file: Path) -> CommandResult:
    """Create and change organisations as declared in FILE (TOML).

    Applying the same file again changes nothing. Members and projects that the file does not
    name stay; the admins of a team, the overrides of a role, the sign-in domains of a
    provider and the install policy become exactly what it lists. A legal hold that it names is
    set; only `countersign org release` lifts one.

    \b
    [orgs.acme]
    tier = "org"
    legal_hold = "case 4711"
    projects = ["payments"]
    role_overrides.admin = ["oidc:r", "oidc:w"]
    sign_in_domains.google = ["acme.example"]
    members."ada@acme.example" = { role = "owner", idp = "github" }
    teams.platform.admins = ["ada@acme.example"]
    policy.cooldown.min_age_days = 7
    """  # noqa: D301 - click reads the backspace
    with rephrased(lambda text: f"{file.name}: {text}"):
        done = await client.post("/api/v1/operator/declaration", read_toml(file))
    changes = done["changes"]
    said = [*changes, f"{len(changes)} changes."] if changes else ["Nothing to change."]
    return CommandResult(done, said)
