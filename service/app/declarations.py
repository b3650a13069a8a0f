"""The operator's endpoint that makes organisations match a declaration."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, ValidationError

from analytics.model.retention import Tier
from analytics.model.rows import AuditContext
from service.access.roles import Role
from service.audit.alerts.alerts_api import list_rules, set_rule
from service.audit.alerts.rules import parse_rule, rule_of
from service.core.errors import Conflict, Invalid, NotFound, errors_at
from service.core.settings import IdentityProviderName
from service.orgs.domains import list_domains, set_domain
from service.orgs.members import add_member, set_role
from service.orgs.organisations import create_org, hold, set_tier
from service.orgs.projects import create_project
from service.orgs.roles import set_role_override
from service.orgs.teams import create_team, set_team_admin
from service.packages.policy.document import parse_policy
from service.packages.policy.repository import set_policy
from service.store.organisations import (
    find_member,
    find_named,
    find_org,
    get_member,
    list_team_admins,
)
from service.store.store import UnitOfWork
from service.store.tables import Organisation, Project, Team
from service.web.dependencies import BaseServices
from service.web.models import Answer, Parsed
from service.web.operator_endpoint import OperatorResource, OperatorWriteCall

DECLARATION_BYTES_MAX: Final = 4 * 2**20

resource = OperatorResource("declaration", "/declaration", BaseServices)


class DeclaredMember(Struct, frozen=True, forbid_unknown_fields=True):
    """A member by email address. Without a role, new ones get `member` and others keep theirs."""

    idp: str
    role: str | None = None


class DeclaredTeam(Struct, frozen=True, forbid_unknown_fields=True):
    """A team and exactly the members who administer it."""

    admins: list[str] = []


class DeclaredOrg(Struct, frozen=True, forbid_unknown_fields=True):
    """An organisation by slug. What it does not name stays as it is.

    `legal_hold` is the reason for a hold. A declaration sets holds and never lifts one: a line
    deleted by mistake must not allow history to be deleted.
    """

    tier: str | None = None
    legal_hold: str | None = None
    projects: list[str] = []
    members: dict[str, DeclaredMember] = {}
    teams: dict[str, DeclaredTeam] = {}
    role_overrides: dict[str, list[str]] = {}
    sign_in_domains: dict[IdentityProviderName, list[str]] = {}
    policy: dict[str, Any] | None = None
    alerts: dict[str, dict[str, Any]] = {}


class Declaration(Struct, frozen=True, forbid_unknown_fields=True):
    """Organisations as they are to be."""

    orgs: dict[str, DeclaredOrg]


class AppliedDeclaration(Answer):
    """What was changed."""

    changes: Annotated[list[str], Meta(description="The names of the events, in order.")]


_PARTS: Final = {"members": DeclaredMember, "teams": DeclaredTeam}


def parse_declaration(tables: dict[str, Any]) -> Declaration:
    """What `tables` declare. Raises Invalid naming the place."""
    try:
        for slug, org in _tables(tables.get("orgs")):
            for part, kind in _PARTS.items():
                for name, declared in _tables(org.get(part)):
                    with errors_at(f"orgs.{slug}.{part}.{name}"):
                        msgspec.convert(declared, kind)
            with errors_at(f"orgs.{slug}"):
                msgspec.convert(org, DeclaredOrg)
        return msgspec.convert(tables, Declaration)
    except ValidationError as error:
        raise Invalid(str(error), field="orgs") from error
    except UnicodeEncodeError as error:  # half a surrogate pair
        raise Invalid("orgs must be text in UTF-8", field="orgs") from error


def _tables(value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables within a table; for an error in one, msgspec's own message says only `[...]`."""
    if isinstance(value, dict):
        yield from ((name, inner) for name, inner in value.items() if isinstance(inner, dict))


@resource.post(
    "apply_declaration",
    body=Parsed(Declaration, parse_declaration, is_long=True, bytes_max=DECLARATION_BYTES_MAX),
    example={"orgs": {"acme": {"tier": "org", "projects": ["payments"]}}},
    returns=AppliedDeclaration,
    refuses=[Conflict, NotFound],
)
async def apply(call: OperatorWriteCall[BaseServices], body: Declaration) -> AppliedDeclaration:
    """Create and change organisations as declared, all of it or nothing.

    The same declaration again changes nothing. Members and projects that it does not name stay;
    the admins of a team, the overrides of a role, the sign-in domains of a provider and the install
    policy become exactly what it lists. A legal hold that it names is set, and none is lifted.
    """
    for slug, declared in body.orgs.items():
        with errors_at(f"orgs.{slug}"):
            await apply_org(call.work, slug, declared, call.by)
    return AppliedDeclaration(changes=call.work.journal.events())


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
        if await find_named(work.session, org, Project, name) is None:
            await create_project(work, org, name, by)
    await _apply_members(work, org, declared.members, by)
    await _apply_teams(work, org, declared.teams, by)
    await _apply_domains(work, org, declared.sign_in_domains, by)
    if declared.policy is not None:
        with errors_at("policy"):
            await set_policy(work, org, parse_policy(declared.policy), by)
    await _apply_alerts(work, org, declared.alerts, by)
    return org


async def _apply_alerts(
    work: UnitOfWork, org: Organisation, declared: dict[str, dict[str, Any]], by: AuditContext
) -> None:
    """Rules by name; others stay, and one that is the same goes on counting."""
    present = {entry.name: entry for entry in await list_rules(work.session, org.id)}
    for name, given in declared.items():
        with errors_at(f"alerts.{name}"):
            rule, entry = parse_rule({**given, "name": name}), present.get(name)
            if entry is None or rule != rule_of(entry):
                await set_rule(work, org, rule, by, entry)


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
        team = await find_named(work.session, org, Team, name)
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
