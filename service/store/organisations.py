"""Queries for organisations and their parts. `get_` raises, `find_` may return None."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from analytics.model.retention import Tier
from service.core.errors import NotFound, OrgNotFound
from service.store.batching import rows_of
from service.store.tables import ApiKey, FormerTier, Member, Organisation, Project, Team, TeamAdmin
from service.store.transaction import Transaction

_Made = TypeVar("_Made")
_Named = TypeVar("_Named", Team, Project)

_HAS_SLUG: Final = Organisation.slug == bindparam("slug")
_ORG: Final = select(Organisation).where(_HAS_SLUG)
_ORG_COLUMNS: Final = select(*Organisation.__table__.columns).where(_HAS_SLUG)
_TRUST_REVISION: Final = select(Organisation.trust_revision).where(
    Organisation.id == bindparam("tenant_id")
)
_LIVE_KEY: Final = select(
    ApiKey.id, ApiKey.tenant_id, ApiKey.project_id, ApiKey.expires_at, ApiKey.scopes
).where(ApiKey.secret_hash == bindparam("secret_hash"), ApiKey.revoked_at.is_(None))


class KeyScope(NamedTuple):
    """The organisation, and optionally the project, that an API key is limited to.

    From `expires_at` on the key must be refused. With `scopes` it may do only what they name;
    without any it may send rows and install.
    """

    key_id: str
    tenant_id: str
    project_id: str | None
    expires_at: datetime | None
    scopes: frozenset[str]


async def find_org(session: AsyncSession, slug: str) -> Organisation | None:
    """The organisation with this slug (case-sensitive), or None."""
    return await session.scalar(_ORG, {"slug": slug})


async def get_org(session: AsyncSession, slug: str) -> Organisation:
    """The organisation with this slug. Raises OrgNotFound."""
    org = await find_org(session, slug)
    if org is None:
        raise OrgNotFound
    return org


def read_org(transaction: Transaction, slug: str) -> Organisation:
    """The organisation with this slug, detached from any session. Raises OrgNotFound."""
    for line in transaction.rows(_ORG_COLUMNS, {"slug": slug}):
        return Organisation(**dict(zip(_ORG_COLUMNS.selected_columns.keys(), line, strict=True)))
    raise OrgNotFound


async def get_org_by_id(session: AsyncSession, tenant_id: str) -> Organisation:
    """The organisation with this id. Raises OrgNotFound."""
    org = await session.get(Organisation, tenant_id)
    if org is None:
        raise OrgNotFound
    return org


def find_trust_revision(transaction: Transaction, tenant_id: str) -> int | None:
    """The current trust revision of the organisation with this id, or None."""
    for (revision,) in transaction.rows(_TRUST_REVISION, {"tenant_id": tenant_id}):
        return int(revision)
    return None


async def list_orgs(session: AsyncSession) -> Sequence[Organisation]:
    """All organisations, by slug."""
    return (await session.scalars(select(Organisation).order_by(Organisation.slug))).all()


async def list_former_tiers(session: AsyncSession, org: Organisation) -> dict[Tier, datetime]:
    """The organisation's former tiers, each with the time it was last left."""
    former = await session.scalars(select(FormerTier).where(FormerTier.tenant_id == org.id))
    return {Tier(entry.tier): entry.left_at for entry in former}


async def find_member(session: AsyncSession, org: Organisation, name: str) -> Member | None:
    """The present member with this id or email address, or None."""
    if not name.isprintable():  # no member's is not, and a database refuses half a surrogate pair
        return None
    return await session.scalar(_members(org).where(or_(Member.id == name, Member.email == name)))


async def get_member(session: AsyncSession, org: Organisation, name: str) -> Member:
    """The present member with this id or email address. Raises NotFound."""
    member = await find_member(session, org, name)
    if member is None:
        raise NotFound(f"Member not found for this org: {name}")
    return member


async def list_members(session: AsyncSession, org: Organisation) -> Sequence[Member]:
    """The present members, by email address."""
    return (await session.scalars(_members(org).order_by(Member.email))).all()


async def list_members_from(
    session: AsyncSession, org: Organisation, containing: str, after: str, limit: int
) -> Sequence[Member]:
    """The first `limit` present members, by email address, after address `after`.

    Only addresses that contain `containing`, case-insensitively.
    """
    query = _page(_members(org), Member.email, containing, after, limit)
    return (await session.scalars(query)).all()


def _members(org: Organisation) -> Select[Member]:
    """The present ones."""
    return select(Member).where(Member.tenant_id == org.id, Member.removed_at.is_(None))


async def list_named_from(
    session: AsyncSession,
    org: Organisation,
    table: type[_Named],
    containing: str,
    after: str,
    limit: int,
) -> Sequence[_Named]:
    """The first `limit` teams or projects, by name, after the name `after`.

    Only names that contain `containing`, case-insensitively.
    """
    query = select(table).where(table.tenant_id == org.id)
    return (await session.scalars(_page(query, table.name, containing, after, limit))).all()


def _page(
    query: Select[_Made],
    name: InstrumentedAttribute[str],
    containing: str,
    after: str,
    limit: int,
) -> Select[_Made]:
    found = query.where(name > after, name.icontains(containing, autoescape=True))
    return found.order_by(name).limit(limit)


async def list_names(
    session: AsyncSession, org: Organisation, table: type[Team | Project]
) -> list[tuple[str, str]]:
    """The id and name of each team or project, by name."""
    query = select(table.id, table.name).where(table.tenant_id == org.id).order_by(table.name)
    return await rows_of(session, query, lambda *names: names)


async def find_named(
    session: AsyncSession, org: Organisation, table: type[_Named], name: str
) -> _Named | None:
    """The team or project with this id or name, or None."""
    return await session.scalar(
        select(table).where(table.tenant_id == org.id, or_(table.id == name, table.name == name))
    )


async def get_named(
    session: AsyncSession, org: Organisation, table: type[_Named], name: str
) -> _Named:
    """The team or project with this id or name. Raises NotFound."""
    named = await find_named(session, org, table, name)
    if named is None:
        raise NotFound(f"{table.__name__} not found for this org: {name}")
    return named


async def list_team_admins(session: AsyncSession, team: Team) -> Sequence[Member]:
    """The present members who administer the team, by email address."""
    query = (
        select(Member)
        .join(TeamAdmin, TeamAdmin.member_id == Member.id)
        .where(TeamAdmin.team_id == team.id, Member.removed_at.is_(None))
        .order_by(Member.email)
    )
    return (await session.scalars(query)).all()


async def list_team_offices(
    session: AsyncSession, org: Organisation, *among: ColumnElement[bool]
) -> Sequence[tuple[Team, Member]]:
    """The pairs of a team and an admin of it that are `among` these, by team name and address."""
    offices = await session.execute(
        select(Team, Member)
        .join(TeamAdmin, TeamAdmin.team_id == Team.id)
        .join(Member, Member.id == TeamAdmin.member_id)
        .where(Team.tenant_id == org.id, Member.removed_at.is_(None), *among)
        .order_by(Team.name, Member.email)
    )
    return [(team, member) for team, member in offices]


async def get_api_key(session: AsyncSession, org: Organisation, key_id: str) -> ApiKey:
    """The unrevoked API key with this id. Raises NotFound."""
    key = await session.scalar(
        select(ApiKey).where(
            ApiKey.tenant_id == org.id, ApiKey.id == key_id, ApiKey.revoked_at.is_(None)
        )
    )
    if key is None:
        raise NotFound(f"Live API key not found for this org: {key_id}")
    return key


async def find_key_in_use(
    session: AsyncSession, tenant_id: str, key_id: str, now: datetime
) -> ApiKey | None:
    """The organisation's API key with this id, or None if it is not accepted at `now`."""
    key = await session.scalar(
        select(ApiKey).where(ApiKey.tenant_id == tenant_id, ApiKey.id == key_id)
    )
    return key if key is not None and is_live(key, now) else None


def find_live_key(transaction: Transaction, secret_hash: str) -> KeyScope | None:
    """The unrevoked API key, of any organisation, whose secret has this hash, or None.

    It may have expired.
    """
    for line in transaction.rows(_LIVE_KEY, {"secret_hash": secret_hash}):
        key_id, tenant_id, project_id, expires_at, scopes = line
        return KeyScope(key_id, tenant_id, project_id, expires_at, frozenset(scopes))
    return None


def is_live(key: ApiKey, now: datetime) -> bool:
    """Whether `key` is accepted at `now`."""
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


async def count_live_keys(
    session: AsyncSession, org: Organisation, projects: Collection[str], now: datetime
) -> dict[str | None, int]:
    """The number of live API keys of those of `projects` that have any."""
    counts = await session.execute(
        select(ApiKey.project_id, func.count())
        .where(ApiKey.tenant_id == org.id, ApiKey.project_id.in_(projects), _has_not_ended(now))
        .group_by(ApiKey.project_id)
    )
    return {row[0]: row[1] for row in counts}


async def list_live_keys(
    session: AsyncSession, org: Organisation, containing: str, after: str, limit: int, now: datetime
) -> Sequence[ApiKey]:
    """The first `limit` keys that are accepted at `now`, newest first, after the key `after`.

    Only keys whose name or id contains `containing`, case-insensitively.
    """
    query = _keys(org, containing).where(_has_not_ended(now))
    if after:
        begun = select(ApiKey.created_at).where(ApiKey.tenant_id == org.id, ApiKey.id == after)
        at = begun.scalar_subquery()
        is_older = and_(ApiKey.created_at == at, ApiKey.id > after)
        query = query.where(or_(ApiKey.created_at < at, is_older))
    return (await session.scalars(query.limit(limit))).all()


async def list_ended_keys(
    session: AsyncSession, org: Organisation, containing: str, limit: int, now: datetime
) -> Sequence[ApiKey]:
    """The first `limit` keys that were revoked or have expired, newest first; as above."""
    ended = _keys(org, containing).where(not_(_has_not_ended(now)))
    return (await session.scalars(ended.limit(limit))).all()


def _keys(org: Organisation, containing: str) -> Select[ApiKey]:
    columns = (ApiKey.name, ApiKey.id)
    return (
        select(ApiKey)
        .where(
            ApiKey.tenant_id == org.id,
            or_(*(column.icontains(containing, autoescape=True) for column in columns)),
        )
        .order_by(ApiKey.created_at.desc(), ApiKey.id)
    )


def _has_not_ended(now: datetime) -> ColumnElement[bool]:
    return and_(
        ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now)
    )


async def find_replaced(
    session: AsyncSession, org: Organisation, keys: Collection[str]
) -> set[str]:
    """The ids of those of `keys` that an unrevoked key was issued for by rotation."""
    query = select(ApiKey.replaces).where(
        ApiKey.tenant_id == org.id, ApiKey.replaces.in_(keys), ApiKey.revoked_at.is_(None)
    )
    return {replaced for replaced in await session.scalars(query) if replaced is not None}


async def list_api_keys(
    session: AsyncSession, org: Organisation, make: Callable[[ApiKey], _Made]
) -> list[_Made]:
    """What `make` returns for each API key, revoked ones included, newest first."""
    query = select(ApiKey).where(ApiKey.tenant_id == org.id).order_by(ApiKey.created_at.desc())
    return await rows_of(session, query, make)
