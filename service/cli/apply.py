"""`countersign apply`: organisations declared in a file, which can be applied repeatedly."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from analytics.model.retention import Tier
from analytics.model.rows import AuditContext
from service.access.roles import Role
from service.cli.answers import Answer
from service.cli.commands import Place, declare
from service.cli.context import CommandContext, on_data_dir
from service.cli.files import errors_at
from service.cli.root import root
from service.core.errors import Invalid
from service.core.settings import IdentityProviderName
from service.orgs.domains import list_domains, set_domain
from service.orgs.holds import hold
from service.orgs.members import add_member, set_role
from service.orgs.organisations import create_org, set_tier
from service.orgs.projects import create_project
from service.orgs.roles import set_role_override
from service.orgs.teams import create_team, set_team_admin
from service.packages.policy.changes import set_policy
from service.packages.policy.document import parse_policy
from service.store.organisations import (
    find_member,
    find_org,
    find_project,
    find_team,
    get_member,
    list_team_admins,
)
from service.store.store import UnitOfWork
from service.store.tables import Organisation


class DeclaredMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member by email address. Without a role, new ones get `member` and others keep theirs."""

    idp: str
    role: str | None = None


class DeclaredTeam(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A team and exactly the members who administer it."""

    admins: list[str] = []


class DeclaredOrg(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An organisation by slug. What it does not name stays as it is.

    `legal_hold` is the reason for a hold. A file sets holds and never lifts one: a line deleted
    by mistake must not allow history to be deleted.
    """

    tier: str | None = None
    legal_hold: str | None = None
    projects: list[str] = []
    members: dict[str, DeclaredMember] = {}
    teams: dict[str, DeclaredTeam] = {}
    role_overrides: dict[str, list[str]] = {}
    sign_in_domains: dict[IdentityProviderName, list[str]] = {}
    policy: dict[str, Any] | None = None


class Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    orgs: dict[str, DeclaredOrg]


_PARTS: Final = {"members": DeclaredMember, "teams": DeclaredTeam}


@declare(root, "apply", place=Place.DATA_DIR, changes=True)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def apply_file(file: Path) -> Answer:
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
    return on_data_dir(_apply, {"file": file})


async def _apply(context: CommandContext, file: Path) -> Answer:
    declaration = read_declaration(file)
    async with context.services.store.write() as work:
        for slug, declared in declaration.orgs.items():
            with errors_at(f"{file.name}: orgs.{slug}"):
                await apply_org(work, slug, declared, context.audit_context)
        changes = work.recorded_events()
    return Answer(
        {"changes": changes},
        [*changes, f"{len(changes)} changes."] if changes else ["Nothing to change."],
    )


def read_declaration(file: Path) -> Declaration:
    """What `file` declares. Raises Invalid naming the place."""
    with errors_at(file.name):
        tables = tomllib.loads(file.read_text())
        orgs = tables.get("orgs")
        for slug, org in _tables(orgs):
            for part, kind in _PARTS.items():
                for name, declared in _tables(org.get(part)):
                    with errors_at(f"orgs.{slug}.{part}.{name}"):
                        msgspec.convert(declared, kind)
            with errors_at(f"orgs.{slug}"):
                msgspec.convert(org, DeclaredOrg)
        return msgspec.convert(tables, Declaration)


def _tables(value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables within a table; for an error in one, msgspec's own message says only `[...]`."""
    if isinstance(value, dict):
        yield from ((name, inner) for name, inner in value.items() if isinstance(inner, dict))


async def apply_org(
    work: UnitOfWork, slug: str, declared: DeclaredOrg, by: AuditContext
) -> Organisation:
    """Make the organisation match `declared`. Raises Invalid, NotFound."""
    org = await find_org(work.session, slug)
    if org is None:
        org = await create_org(work, slug, declared.tier or Tier.ORG, by)
    if declared.tier is not None:
        await set_tier(work, org, declared.tier, by)
    if declared.legal_hold is not None:
        await hold(work, org, declared.legal_hold, by)
    for role, capabilities in declared.role_overrides.items():
        await set_role_override(work, org, role, capabilities, by)
    for name in declared.projects:
        if await find_project(work.session, org, name) is None:
            await create_project(work, org, name, by)
    await _apply_members(work, org, declared.members, by)
    await _apply_teams(work, org, declared.teams, by)
    await _apply_domains(work, org, declared.sign_in_domains, by)
    if declared.policy is not None:
        with errors_at("policy"):
            await set_policy(work, org, parse_policy(declared.policy), by)
    return org


async def _apply_members(
    work: UnitOfWork, org: Organisation, declared: dict[str, DeclaredMember], by: AuditContext
) -> None:
    # Owners first, so that an organisation whose owner changes is never without one.
    for email, wanted in sorted(declared.items(), key=lambda item: item[1].role != Role.OWNER):
        with errors_at(f"members.{email}"):
            member = await find_member(work.session, org, email)
            if member is None:
                await add_member(work, org, email, wanted.role or Role.MEMBER, wanted.idp, by)
            elif member.identity_provider != wanted.idp:
                raise Invalid(
                    "a member's idp cannot be changed; remove the member and add them again"
                )
            elif wanted.role is not None:
                await set_role(work, org, member, wanted.role, by)


async def _apply_teams(
    work: UnitOfWork, org: Organisation, declared: dict[str, DeclaredTeam], by: AuditContext
) -> None:
    for name, wanted in declared.items():
        team = await find_team(work.session, org, name)
        if team is None:
            team = await create_team(work, org, name, by)
        with errors_at(f"teams.{name}"):
            admins = [await get_member(work.session, org, email) for email in wanted.admins]
        for former in await list_team_admins(work.session, team):
            if former.id not in {admin.id for admin in admins}:
                await set_team_admin(work, team, former, by, is_admin=False)
        for admin in admins:
            await set_team_admin(work, team, admin, by, is_admin=True)


async def _apply_domains(
    work: UnitOfWork,
    org: Organisation,
    declared: dict[IdentityProviderName, list[str]],
    by: AuditContext,
) -> None:
    present = await list_domains(work.session, org)
    for idp, wanted in declared.items():
        with errors_at(f"sign_in_domains.{idp}"):
            domains = {domain.lower() for domain in wanted}
            for former in present:
                if former.identity_provider == idp and former.domain not in domains:
                    await set_domain(work, org, former.domain, idp, by, is_allowed=False)
            for domain in wanted:
                await set_domain(work, org, domain, idp, by, is_allowed=True)
