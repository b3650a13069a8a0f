"""Lifetimes of API keys: expiry, and rotation with an overlap in which both keys work."""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import select

from analytics.model.instants import format_ms, parse_until
from analytics.model.org_envelopes import ApiKeyRotated
from analytics.model.rows import AuditContext
from service.durations import parse_duration
from service.errors import Conflict, Invalid, NotFound
from service.orgs.changes import issue_api_key, revoke_api_key
from service.orgs.repository import get_project
from service.store.store import UnitOfWork
from service.store.tables import ApiKey, Organisation

OVERLAP_MAX: Final = timedelta(days=90)
LIFETIME_MAX: Final = timedelta(days=3_650)


def parse_expiry(text: str, now: datetime) -> datetime | None:
    """The expiry in `text`: a length from now (`90d`, `12h`), a date (its end) or an instant.

    None for empty text: never. Raises Invalid.
    """
    if not text:
        return None
    try:
        length = _parse_length(text)
        expires_at = parse_until(text) if length is None else now + length
    except ValueError as error:
        raise Invalid(
            "expires must be a length (90d, 12h), a date (2026-12-31) or an instant"
            " (2026-12-31T08:00:00Z)",
            field="expires",
        ) from error
    if not now < expires_at <= now + LIFETIME_MAX:
        raise Invalid(
            f"expires must be in the future, at most {LIFETIME_MAX.days} days ahead",
            field="expires",
        )
    return expires_at


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


async def _lifetime(work: UnitOfWork, key: ApiKey) -> timedelta | None:
    """How long `key` was to work when it was issued; None if it had no expiry.

    A rotation ends a key early. Its successor got the whole lifetime, and so on.
    """
    successors = select(ApiKey).order_by(ApiKey.created_at).limit(1)
    latest = key
    while successor := await work.session.scalar(successors.where(ApiKey.replaces == latest.id)):
        latest = successor
    return None if latest.expires_at is None else latest.expires_at - latest.created_at


async def rotate_api_key(
    work: UnitOfWork, org: Organisation, key: ApiKey, overlap: timedelta, by: AuditContext
) -> tuple[ApiKey, str]:
    """Replace `key`, which works for at most `overlap` more; returns the new key and its secret.

    The new key has the same name, project, scopes and lifetime. Raises NotFound if `key` has
    expired, and Conflict if it was rotated before: of two successors, one would be forgotten.
    """
    if key.expires_at is not None and key.expires_at <= work.now:
        raise NotFound(f"API key {key.id} has expired: issue a new one")
    successor = await work.session.scalar(
        select(ApiKey.id).where(
            ApiKey.tenant_id == org.id, ApiKey.replaces == key.id, ApiKey.revoked_at.is_(None)
        )
    )
    if successor is not None:
        raise Conflict(f"API key {key.id} was rotated before: rotate or revoke {successor} instead")
    project = None
    if key.project_id is not None:
        project = await get_project(work.session, org, key.project_id)
    lifetime = await _lifetime(work, key)
    new, secret = await issue_api_key(
        work,
        org,
        key.name,
        project,
        by,
        scopes=key.scopes,
        expires_at=None if lifetime is None else work.now + lifetime,
        replaces=key.id,
    )
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
