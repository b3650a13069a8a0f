"""Changes to organisations and what belongs to them; each adds its audit row."""

import re
from collections.abc import Sequence
from typing import Final, get_args

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.org_envelopes import (
    IdentityProviderName,
    MemberAdded,
    MemberRemoved,
    MemberRoleChanged,
    OrgCreated,
    OrgTierChanged,
    ProjectCreated,
    RoleOverrideChanged,
    SessionIssued,
    SessionRevoked,
    TeamAdminChanged,
    TeamCreated,
)
from analytics.model.retention import Tier
from analytics.model.rows import AuditContext
from service.access.roles import Capability, Role, covers
from service.access.sessions import issue_link, issue_session, revoke_sessions
from service.core.errors import Conflict, Invalid
from service.core.ids import new_id
from service.core.text_rules import check_name
from service.store.organisations import find_member, find_org, find_project, find_team
from service.store.store import UnitOfWork
from service.store.tables import FormerTier, Member, Organisation, Project, Team, TeamAdmin

_SLUG: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?", re.ASCII)
_PROVIDERS: Final[dict[str, IdentityProviderName]] = {
    name: name for name in get_args(IdentityProviderName)
}
EMAIL_PATTERN: Final = r"^[^@\s]{1,64}@[^@\s]{1,190}$"
EMAIL_INVALID: Final = "email must be an address such as ada@example.com"
_EMAIL: Final = re.compile(EMAIL_PATTERN)


async def create_org(work: UnitOfWork, slug: str, tier: str, by: AuditContext) -> Organisation:
    """Create an organisation. Raises Invalid, Conflict."""
    if not _SLUG.fullmatch(slug):
        raise Invalid("slug must be 1 to 64 letters, digits and inner hyphens", field="slug")
    if await find_org(work.session, slug) is not None:
        raise Conflict(f"organisation {slug} already exists")
    org = Organisation(
        id=new_id("org"),
        slug=slug,
        tier=_choice("tier", tier, Tier),
        role_overrides={},
        created_at=work.now,
    )
    await _insert(work.session, org)
    work.record(org.id, OrgCreated(slug=slug, tier=tier), by)
    return org


async def set_tier(work: UnitOfWork, org: Organisation, tier: str, by: AuditContext) -> None:
    """Change the organisation's tier and record the former one. Raises Invalid."""
    before = org.tier
    org.tier = _choice("tier", tier, Tier)
    if before != org.tier:
        await work.session.merge(FormerTier(tenant_id=org.id, tier=before, left_at=work.now))
        work.record(org.id, OrgTierChanged(tier_before=before, tier_after=org.tier), by)


async def set_role_override(
    work: UnitOfWork, org: Organisation, role: str, capabilities: Sequence[str], by: AuditContext
) -> None:
    """Grant `role` exactly `capabilities` beyond its defaults. Raises Invalid."""
    role = _choice("role", role, Role)
    granted = sorted({_choice("capability", name, Capability) for name in capabilities})
    before = org.role_overrides.get(role, [])
    if before == granted:
        return
    others = {name: names for name, names in org.role_overrides.items() if name != role}
    org.role_overrides = {**others, role: granted} if granted else others
    work.record(
        org.id,
        RoleOverrideChanged(role=role, capabilities_before=before, capabilities_after=granted),
        by,
    )


async def create_project(
    work: UnitOfWork, org: Organisation, name: str, by: AuditContext
) -> Project:
    """Create a project. Raises Invalid, Conflict."""
    check_name(name)
    if await find_project(work.session, org, name) is not None:
        raise Conflict(f"project {name} already exists in {org.slug}")
    project = Project(id=new_id("proj"), tenant_id=org.id, name=name, created_at=work.now)
    await _insert(work.session, project)
    work.record(org.id, ProjectCreated(project_id=project.id, name=name), by, subject=project.id)
    return project


async def create_team(work: UnitOfWork, org: Organisation, name: str, by: AuditContext) -> Team:
    """Create a team. Raises Invalid, Conflict."""
    check_name(name)
    if await find_team(work.session, org, name) is not None:
        raise Conflict(f"team {name} already exists in {org.slug}")
    team = Team(id=new_id("team"), tenant_id=org.id, name=name, created_at=work.now)
    await _insert(work.session, team)
    work.record(org.id, TeamCreated(team_id=team.id, name=name), by, subject=team.id)
    return team


async def set_team_admin(
    work: UnitOfWork, team: Team, member: Member, by: AuditContext, *, is_admin: bool
) -> None:
    """Add or remove `member` as an admin of `team`; without a change no audit row is added."""
    entry = await work.session.get(TeamAdmin, (team.id, member.id))
    if (entry is not None) == is_admin:
        return
    if entry is None:
        await _insert(work.session, TeamAdmin(team_id=team.id, member_id=member.id))
    else:
        await work.session.delete(entry)
    work.record(
        team.tenant_id,
        TeamAdminChanged(team_id=team.id, member_id=member.id, is_admin=is_admin),
        by,
        subject=member.id,
    )


async def add_member(
    work: UnitOfWork,
    org: Organisation,
    email: str,
    role: str,
    identity_provider: str,
    by: AuditContext,
) -> Member:
    """Create a member. Raises Invalid, Conflict."""
    if not _EMAIL.fullmatch(email) or not email.isprintable():
        raise Invalid(EMAIL_INVALID, field="email")
    provider = parse_provider(identity_provider)
    if await find_member(work.session, org, email) is not None:
        raise Conflict(f"{email} is already a member of {org.slug}")
    member = Member(
        id=new_id("mem"),
        tenant_id=org.id,
        email=email,
        role=_choice("role", role, Role),
        identity_provider=identity_provider,
        created_at=work.now,
    )
    await _insert(work.session, member)
    work.record(
        org.id,
        MemberAdded(member_id=member.id, email=email, role=role, identity_provider=provider),
        by,
        subject=member.id,
    )
    return member


async def set_role(
    work: UnitOfWork, org: Organisation, member: Member, role: str, by: AuditContext
) -> None:
    """Change the member's role; if the new one grants more, their sessions and links end.

    Raises Invalid, also for demoting the last owner.
    """
    before = member.role
    after = _choice("role", role, Role)
    if before == after:
        return
    await _require_another_owner(work.session, member)
    member.role = after
    if not covers(Role(before), Role(after), org.role_overrides):
        # A session that another person may be using must not gain the new role.
        await revoke_sessions(work.session, member.id, work.now)
    work.record(
        org.id,
        MemberRoleChanged(member_id=member.id, role_before=before, role_after=after),
        by,
        subject=member.id,
    )


async def remove_member(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> None:
    """End a membership, its sessions and team admin roles. Raises Invalid for the last owner."""
    await _require_another_owner(work.session, member)
    member.removed_at = work.now
    await revoke_sessions(work.session, member.id, work.now)
    await work.session.execute(delete(TeamAdmin).where(TeamAdmin.member_id == member.id))
    work.record(org.id, MemberRemoved(member_id=member.id, role=member.role), by, subject=member.id)


async def issue_sign_in(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> str:
    """Issue a single-use sign-in token for `member`."""
    token = await issue_link(work.session, member, work.now)
    work.record(org.id, SessionIssued(member_id=member.id, method="link"), by, subject=member.id)
    return token


async def issue_cookie(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> str:
    """Start a session of `member` and return its cookie value."""
    _, token = await issue_session(work.session, member, work.now)
    work.record(org.id, SessionIssued(member_id=member.id, method="cookie"), by, subject=member.id)
    return token


async def end_sessions(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> int:
    """End all sessions of `member`; returns how many there were."""
    ended = await revoke_sessions(work.session, member.id, work.now)
    work.record(org.id, SessionRevoked(member_id=member.id, sessions=ended), by, subject=member.id)
    return ended


async def _require_another_owner(session: AsyncSession, member: Member) -> None:
    """Raise Invalid if `member` is the only owner, so that an organisation always has one."""
    if member.role != Role.OWNER:
        return
    others = await session.scalar(
        select(func.count())
        .select_from(Member)
        .where(
            Member.tenant_id == member.tenant_id,
            Member.role == Role.OWNER,
            Member.removed_at.is_(None),
            Member.id != member.id,
        )
    )
    if not others:
        raise Invalid(
            "the last owner cannot be removed or changed: make another member an owner first"
        )


async def _insert(
    session: AsyncSession, row: Organisation | Project | Team | TeamAdmin | Member
) -> None:
    session.add(row)
    await session.flush()


def parse_role(name: str) -> Role:
    """The role of this name. Raises Invalid."""
    return Role(_choice("role", name, Role))


def parse_provider(idp: str) -> IdentityProviderName:
    """The identity provider of this name. Raises Invalid."""
    provider = _PROVIDERS.get(idp)
    if provider is None:
        raise Invalid(f"idp must be one of {', '.join(_PROVIDERS)}", field="idp")
    return provider


def _choice(field: str, value: str, choices: type[Tier] | type[Role] | type[Capability]) -> str:
    if value not in set(choices):
        raise Invalid(f"{field} must be one of {', '.join(choices)}", field=field)
    return value
