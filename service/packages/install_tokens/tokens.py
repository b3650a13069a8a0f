"""Install tokens as stored: only as hashes, bounded in number, and forgotten once expired."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from sqlalchemy import and_, bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.envelopes import VerifiedCi
from analytics.model.instants import format_ms
from analytics.model.org_envelopes import InstallTokenIssued
from analytics.model.rows import AuditContext
from service.ci.verifier.attribution import Attribution, ProvedJob
from service.core.ids import new_id
from service.core.secrets import new_token, token_hash
from service.packages.refusals import TOO_MANY_INSTALL_TOKENS
from service.store.organisations import KeyScope
from service.store.store import Store, UnitOfWork
from service.store.tables import ApiKey, InstallToken, MachineToken
from service.store.transaction import Transaction

PREFIX: Final = "csi_"
"""How every install token begins, so that it differs from API keys and CI tokens."""

LIVE_OF_KEY_MAX: Final = 20_000
"""Live install tokens of one API key: five jobs a second for an hour."""

LIVE_OF_CI_TOKEN_MAX: Final = 32
"""Live install tokens per CI token: far more than a job needs that exchanges it in every step."""

KEPT: Final = timedelta(days=1)
"""How long expired tokens are kept, so that a job is told that its token has expired."""

MACHINE_TOKENS_KEPT: Final = timedelta(days=90)
"""How long ended tokens are kept: rows of their installs show the machine's name."""

# Joined with the key as it is now: its revocation ends all of its tokens at once.
_TOKEN: Final = (
    select(
        InstallToken.id,
        InstallToken.expires_at,
        InstallToken.issuer,
        InstallToken.sub,
        InstallToken.repository_id,
        InstallToken.event_name,
        InstallToken.run_id,
        InstallToken.token_id,
        InstallToken.condition_claims,
        ApiKey.id,
        ApiKey.tenant_id,
        ApiKey.project_id,
        ApiKey.expires_at,
        ApiKey.scopes,
        ApiKey.revoked_at,
    )
    .join(
        ApiKey,
        and_(ApiKey.id == InstallToken.api_key_id, ApiKey.tenant_id == InstallToken.tenant_id),
    )
    .where(InstallToken.token_hash == bindparam("token_hash"))
)


class StoredToken(NamedTuple):
    """An install token, with the current state of its API key, and the job it was issued for.

    It must be refused from `expires_at` on, and if its key was revoked or has expired.
    """

    id: str
    expires_at: datetime
    job: ProvedJob
    key: KeyScope
    key_is_revoked: bool


def find_token(transaction: Transaction, hashed: str) -> StoredToken | None:
    """The install token with this hash, in any organisation, or None. It may have expired."""
    for line in transaction.rows(_TOKEN, {"token_hash": hashed}):
        token_id, expires_at, issuer, sub, *claims, condition_claims = line[:9]
        repository_id, event_name, run_id, jti = map(_or_unset, claims)
        ci = VerifiedCi(
            sub=sub, repository_id=repository_id, event_name=event_name, run_id=run_id, jti=jti
        )
        key_id, tenant_id, project_id, key_expires_at, scopes, revoked_at = line[9:]
        key = KeyScope(key_id, tenant_id, project_id, key_expires_at, frozenset(scopes))
        return StoredToken(
            token_id,
            expires_at,
            ProvedJob(issuer, ci, condition_claims or {}),
            key,
            key_is_revoked=revoked_at is not None,
        )
    return None


async def issue_install_token(
    work: UnitOfWork, key: ApiKey, ci: Attribution, lifetime: timedelta, by: AuditContext
) -> tuple[InstallToken, str]:
    """Issue a token for the CI job `ci` to the API key; returns it and its value.

    The value is not stored. The token works for `lifetime`, but no longer than its key. Raises
    TOO_MANY_INSTALL_TOKENS.
    """
    claims = ci.ci
    jti = _or_none(claims.jti)
    await _check_room(work.session, key.id, jti, work.now)
    expires_at = work.now + lifetime
    secret = new_token(PREFIX)
    token = InstallToken(
        id=new_id("itok"),
        tenant_id=key.tenant_id,
        api_key_id=key.id,
        token_hash=token_hash(secret),
        binding_id=ci.binding_id,
        issuer=ci.issuer.url,
        sub=claims.sub,
        repository_id=_or_none(claims.repository_id),
        event_name=_or_none(claims.event_name),
        run_id=_or_none(claims.run_id),
        token_id=jti,
        condition_claims=ci.condition_claims or None,
        created_at=work.now,
        expires_at=expires_at if key.expires_at is None else min(expires_at, key.expires_at),
    )
    work.session.add(token)
    await work.session.flush()
    issued = InstallTokenIssued(
        install_token_id=token.id,
        key_id=key.id,
        binding_id=ci.binding_id,
        expires_at=format_ms(token.expires_at),
    )
    work.record(key.tenant_id, issued, by, subject=token.id)
    return token, secret


async def _check_room(session: AsyncSession, key_id: str, jti: str | None, now: datetime) -> None:
    """Raise TOO_MANY_INSTALL_TOKENS if the key or the CI token has the maximum of live tokens."""
    # Under the write lock of the insertion: concurrent exchanges cannot exceed the limits together.
    live = select(func.count()).where(
        InstallToken.api_key_id == key_id, InstallToken.expires_at > now
    )
    if (await session.scalar(live) or 0) >= LIVE_OF_KEY_MAX:
        raise TOO_MANY_INSTALL_TOKENS(value="this API key")
    # A CI token without a `jti` cannot be recognised again: only the limit of its key applies.
    of_ci_token = live.where(InstallToken.token_id == jti)
    if jti is not None and (await session.scalar(of_ci_token) or 0) >= LIVE_OF_CI_TOKEN_MAX:
        raise TOO_MANY_INSTALL_TOKENS(value="this CI token")


async def delete_expired_tokens(store: Store) -> None:
    """Delete tokens, also those of machines, that expired long ago. Audit rows are unaffected."""
    for table, kept in ((InstallToken, KEPT), (MachineToken, MACHINE_TOKENS_KEPT)):
        is_old = table.expires_at <= store.clock() - kept
        async with store.read() as session:  # no write lock while there is nothing to delete
            found = await session.scalar(select(table.id).where(is_old).limit(1))
        if found is not None:
            async with store.write() as work:
                await work.session.execute(delete(table).where(is_old))


def _or_none(claim: str | UnsetType | None) -> str | None:
    return None if claim is UNSET else claim


def _or_unset(claim: str | None) -> str | UnsetType:
    return UNSET if claim is None else claim
