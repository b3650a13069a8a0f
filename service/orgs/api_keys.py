"""API keys: issued with scopes and an expiry, rotated with an overlap, and revoked.

The page, the API and the commands issue keys by these rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, and_, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from analytics.model.instants import format_ms, optional_ms, parse_until
from analytics.model.org_envelopes import ApiKeyCreated, ApiKeyRevoked, ApiKeyRotated
from analytics.model.rows import AuditContext
from service.access.roles import KEY_SCOPES, READING_SCOPES, UNSCOPED_RIGHTS, Capability
from service.core.durations import parse_duration
from service.core.errors import Conflict, Invalid, NotFound
from service.core.ids import new_id
from service.core.secrets import new_token, token_hash
from service.core.text_rules import check_name
from service.store.organisations import get_named
from service.store.store import UnitOfWork
from service.store.tables import ApiKey, Organisation, Project

API_KEY_PREFIX: Final = "cs_"
OVERLAP_DEFAULT: Final = "24h"
OVERLAP_MAX: Final = timedelta(days=90)
LIFETIME_MAX: Final = timedelta(days=3_650)
LIFETIME_DEFAULT: Final = timedelta(days=90)
NEVER: Final = "never"
EXPIRES_SOON: Final = timedelta(days=14)
"""How long before its expiry a key is marked in lists."""

EXPIRES_NEXT: Final = timedelta(days=7)
"""How long before its expiry a key is counted for the operator, who may have to ask for it."""

Require = Callable[[Capability, Organisation], None]
"""Raises Forbidden unless the issuer has the capability in the organisation."""


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """How long the operator lets keys live: at most `days_max` days; 0: LIFETIME_MAX, or never."""

    days_max: int = 0

    @property
    def longest(self) -> timedelta:
        """The longest life of a key that expires."""
        return timedelta(days=self.days_max) if self.days_max else LIFETIME_MAX

    @property
    def default(self) -> timedelta:
        """The life of a key for which none is named."""
        return min(LIFETIME_DEFAULT, self.longest)

    @property
    def allows_never(self) -> bool:
        """Whether a key may live without an end."""
        return not self.days_max

    def parse_expiry(self, text: str, now: datetime) -> datetime | None:
        """The expiry in `text`: a length from now (`90d`, `12h`), a date (its end) or an instant.

        None for `never`, and the default for empty text. Raises Invalid.
        """
        if text == NEVER and self.allows_never:
            return None
        try:
            length = _parse_length(text) if text else self.default
            expires_at = parse_until(text) if length is None else now + length
        except ValueError as error:
            never = f", or {NEVER}" if self.allows_never else ""
            raise Invalid(
                "expires must be a length (90d, 12h), a date (2026-12-31) or an instant"
                f" (2026-12-31T08:00:00Z){never}",
                field="expires",
            ) from error
        if not now < expires_at <= now + self.longest:
            raise Invalid(
                f"expires must be in the future, at most {self.longest.days} days ahead",
                field="expires",
            )
        return expires_at


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """The key that a caller wants; `project` is an id or a name, `expires` as in `parse_expiry`."""

    name: str
    scopes: Sequence[str]
    project: str = ""
    expires: str = ""


async def request_api_key(
    work: UnitOfWork,
    org: Organisation,
    asked: KeyRequest,
    terms: KeyTerms,
    by: AuditContext,
    require: Require,
) -> tuple[ApiKey, str]:
    """Issue the key that is asked for; returns it with its secret, which is not stored.

    Raises Forbidden for a scope that the issuer lacks, Invalid, and NotFound for the project.
    """
    _require_all(require, asked.scopes, org)
    if not asked.project.isprintable():
        raise Invalid("project must be an id or a name of printable characters", field="project")
    project = await get_named(work.session, org, Project, asked.project) if asked.project else None
    expires_at = terms.parse_expiry(asked.expires, work.now)
    return await issue_api_key(
        work, org, asked.name, project, by, scopes=asked.scopes, expires_at=expires_at
    )


async def issue_api_key(
    work: UnitOfWork,
    org: Organisation,
    name: str,
    project: Project | None,
    by: AuditContext,
    *,
    scopes: Sequence[str],
    expires_at: datetime | None = None,
    replaces: str | None = None,
) -> tuple[ApiKey, str]:
    """Create an API key that may do what `scopes` (of KEY_SCOPES) name, and nothing else.

    It is refused from `expires_at` on. `replaces` is the id of the key that it replaces. The
    caller checks the issuer's rights. Raises Invalid.
    """
    check_name(name)
    granted = _key_scopes(scopes, project)
    secret = new_token(API_KEY_PREFIX)
    key = ApiKey(
        id=new_id("key"),
        tenant_id=org.id,
        project_id=project.id if project else None,
        name=name,
        secret_hash=token_hash(secret),
        scopes=granted,
        created_at=work.now,
        created_by=by.actor,
        expires_at=expires_at,
        replaces=replaces,
    )
    work.session.add(key)
    await work.session.flush()
    created = ApiKeyCreated(
        key_id=key.id,
        name=name,
        project_id=key.project_id,
        scopes=granted,
        expires_at=optional_ms(expires_at),
    )
    work.record(org.id, created, by, subject=key.id)
    return key, secret


async def rotate_api_key(
    work: UnitOfWork,
    org: Organisation,
    key: ApiKey,
    overlap: timedelta,
    terms: KeyTerms,
    by: AuditContext,
    require: Require,
) -> tuple[ApiKey, str]:
    """Replace `key`, which works for at most `overlap` more; returns the new key and its secret.

    The new key has the same name, project, scopes and lifetime; a key without scopes gets those
    that it had all along, and the default lifetime. Raises Forbidden for a scope that the issuer
    lacks, NotFound if `key` has expired, and Conflict if it was rotated before: of two successors,
    one would be forgotten.
    """
    scopes = key.scopes or [str(scope) for scope in UNSCOPED_RIGHTS]
    # Before the new key exists: its secret would give the caller capabilities that they lack.
    _require_all(require, scopes, org)
    await _check_rotatable(work, org, key)
    new, secret = await _issue_successor(work, org, key, scopes, terms, by)
    # Never later than before: a rotation must not prolong the life of an old secret.
    ends_at = min(work.now + overlap, key.expires_at or work.now + overlap)
    key.expires_at = ends_at
    work.record(
        org.id,
        ApiKeyRotated(key_id=key.id, new_key_id=new.id, expires_at=format_ms(ends_at)),
        by,
        subject=key.id,
    )
    if not overlap:
        await revoke_api_key(work, org, key, by)
    return new, secret


async def revoke_api_key(
    work: UnitOfWork, org: Organisation, key: ApiKey, by: AuditContext
) -> None:
    """Revoke an API key."""
    key.revoked_at = work.now
    work.record(org.id, ApiKeyRevoked(key_id=key.id), by, subject=key.id)


def expires_soon(key: ApiKey, now: datetime) -> bool:
    """Whether `key`, if it is live, has to be rotated within EXPIRES_SOON."""
    return key.expires_at is not None and key.expires_at - now < EXPIRES_SOON


async def count_expiring_keys(session: AsyncSession, now: datetime) -> dict[str, int]:
    """Of each tenant id: its live keys that end within EXPIRES_NEXT; 0 for none is left out.

    Not those that were rotated: what uses them gets the new one meanwhile.
    """
    counts = await session.execute(
        select(ApiKey.tenant_id, func.count())
        .where(_ends_within(EXPIRES_NEXT, now))
        .group_by(ApiKey.tenant_id)
    )
    return {row[0]: row[1] for row in counts}


async def list_expiring_keys(
    session: AsyncSession, tenant_id: str, now: datetime, limit: int
) -> Sequence[ApiKey]:
    """Up to `limit` live keys that end within EXPIRES_SOON and were not rotated, the next first."""
    ending = select(ApiKey).where(ApiKey.tenant_id == tenant_id, _ends_within(EXPIRES_SOON, now))
    return (await session.scalars(ending.order_by(ApiKey.expires_at).limit(limit))).all()


def _ends_within(length: timedelta, now: datetime) -> ColumnElement[bool]:
    successor = aliased(ApiKey)
    return and_(
        ApiKey.revoked_at.is_(None),
        ApiKey.expires_at > now,
        ApiKey.expires_at <= now + length,
        ~exists().where(successor.replaces == ApiKey.id, successor.revoked_at.is_(None)),
    )


def parse_overlap(text: str) -> timedelta:
    """How long the old key works beside the new one: `0`, or a length such as `7d` or `12h`.

    Raises Invalid.
    """
    overlap = timedelta(0) if text == "0" else _parse_length(text)
    if overlap is None or overlap > OVERLAP_MAX:
        raise Invalid(
            f"overlap must be 0 or a length (12h, 7d) of at most {OVERLAP_MAX.days} days",
            field="overlap",
        )
    return overlap


def _parse_length(text: str) -> timedelta | None:
    return parse_duration(text, "hd", digits_max=5)


def _require_all(require: Require, scopes: Sequence[str], org: Organisation) -> None:
    """Raise Forbidden unless the issuer has each of `scopes`. Unknown ones are refused later."""
    for scope in set(scopes) & set(KEY_SCOPES):
        require(Capability(scope), org)


def _key_scopes(scopes: Sequence[str], project: Project | None) -> list[str]:
    """`scopes` in the order of KEY_SCOPES. Raises Invalid."""
    if not scopes:
        raise Invalid(f"name at least one scope of {', '.join(KEY_SCOPES)}", field="scopes")
    unknown = sorted(set(scopes) - set(KEY_SCOPES))
    if unknown:
        raise Invalid(
            f"scopes must be of {', '.join(KEY_SCOPES)}, not {', '.join(unknown)}", field="scopes"
        )
    if project is not None and set(scopes) & set(READING_SCOPES):
        raise Invalid(
            "a key of a project cannot read: what it reads is not limited to the project",
            field="scopes",
        )
    return [str(scope) for scope in KEY_SCOPES if scope in scopes]


async def _check_rotatable(work: UnitOfWork, org: Organisation, key: ApiKey) -> None:
    if key.expires_at is not None and key.expires_at <= work.now:
        raise NotFound(f"API key {key.id} has expired: issue a new one")
    successor = await work.session.scalar(
        select(ApiKey.id).where(
            ApiKey.tenant_id == org.id, ApiKey.replaces == key.id, ApiKey.revoked_at.is_(None)
        )
    )
    if successor is not None:
        raise Conflict(f"API key {key.id} was rotated before: rotate or revoke {successor} instead")


async def _issue_successor(
    work: UnitOfWork,
    org: Organisation,
    key: ApiKey,
    scopes: Sequence[str],
    terms: KeyTerms,
    by: AuditContext,
) -> tuple[ApiKey, str]:
    """The key that replaces `key`, with `scopes`, and its secret."""
    project = None
    if key.project_id is not None:
        project = await get_named(work.session, org, Project, key.project_id)
    lifetime = await _next_lifetime(work, key, terms)
    return await issue_api_key(
        work,
        org,
        key.name,
        project,
        by,
        scopes=scopes,
        expires_at=None if lifetime is None else work.now + lifetime,
        replaces=key.id,
    )


async def _next_lifetime(work: UnitOfWork, key: ApiKey, terms: KeyTerms) -> timedelta | None:
    """How long the successor of `key` works: as long as `key` was to, within `terms`."""
    lifetime = await _lifetime(work, key)
    if lifetime is None:
        # A key without scopes was issued when no end was the default; another chose to have none.
        if not key.scopes:
            return terms.default
        return None if terms.allows_never else terms.longest
    return min(lifetime, terms.longest)


async def _lifetime(work: UnitOfWork, key: ApiKey) -> timedelta | None:
    """How long `key` was to work when it was issued; None if it had no expiry.

    A rotation ends a key early. Its successor got the whole lifetime, and so on.
    """
    successors = select(ApiKey).order_by(ApiKey.created_at).limit(1)
    latest = key
    while successor := await work.session.scalar(successors.where(ApiKey.replaces == latest.id)):
        latest = successor
    return None if latest.expires_at is None else latest.expires_at - latest.created_at
