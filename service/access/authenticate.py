"""Resolves a request's credentials to its caller."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar, cast

import structlog
from quart import Request
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import format_ms
from analytics.model.rows import VerdictSource
from service.access.admin_tokens import AdminTokens
from service.access.callers import (
    OPERATOR_SCOPE,
    ApiKeyPrincipal,
    Caller,
    IngestPrincipal,
    MemberPrincipal,
    Operator,
    Principal,
    RequestOrigin,
    admin_token_caller,
)
from service.access.cross_site import is_cross_site
from service.access.key_use import KeyUse
from service.access.refusals import OPERATOR_ONLY, ApiKeyExpired, SignInAgain
from service.access.roles import Role
from service.access.sessions import (
    SessionLifetimes,
    delete_expired_sessions,
    find_session,
    list_teams_of,
    touch_session,
)
from service.core.clock import Clock
from service.core.errors import Unauthenticated
from service.core.header_names import ADMIN_TOKEN_HEADER, API_KEY_HEADER, SESSION_COOKIE
from service.core.request_context import request_id, source_ip, user_agent
from service.core.secrets import token_hash
from service.core.settings import Settings
from service.store.organisations import KeyScope, find_live_key
from service.store.store import Store
from service.store.tables import Member, Session
from service.store.transaction import Transaction

_Principal = TypeVar("_Principal", bound=Principal)


class Authenticator:
    """Verifies the credentials that the admin surface accepts."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, key_use: KeyUse) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._key_use = key_use
        self._admin_tokens = AdminTokens(settings)
        self.lifetimes = SessionLifetimes.of(settings)

    async def caller(
        self,
        request: Request,
        origin: VerdictSource = VerdictSource.ADMIN_API,
        *,
        keeps_alive: bool = True,
    ) -> Caller:
        """The caller of `request`. Raises Unauthenticated.

        An admin-token header alone decides: falling back to a cookie would let a request with a
        mistyped token act as the member. The same goes for an API key with scopes. Keys and bearer
        tokens are accepted only by the API, not by pages. A command in this process has no
        credential: its operator is in the scope, see `OPERATOR_SCOPE`.
        """
        operator = request.scope.get(OPERATOR_SCOPE)
        if isinstance(operator, Operator) and origin is VerdictSource.ADMIN_API:
            return _named_in_logs(operator)
        entrance = self.origin(request, origin)
        tokens = request.headers.getlist(ADMIN_TOKEN_HEADER)
        if tokens:
            # All of several must be right: if one sufficed, a request could carry many guesses.
            if not all(map(self._admin_tokens.accepts, tokens)):
                raise Unauthenticated
            return _named_in_logs(admin_token_caller(entrance))
        if origin is VerdictSource.ADMIN_API:
            key = await self._reading_key(request, entrance)
            if key is not None:
                return key
        return await self.member(request, entrance, keeps_alive=keeps_alive)

    async def operator(self, request: Request) -> Operator:
        """The operator, who acts for the platform. Raises Unauthenticated, OPERATOR_ONLY."""
        caller = await self.caller(request)
        if not isinstance(caller, Operator):
            raise OPERATOR_ONLY
        return replace(caller, actor_tenant_id=self._settings.platform_tenant_id)

    async def principal(self, request: Request) -> IngestPrincipal:
        """The sender of the audit rows in `request`. Raises Unauthenticated.

        Raises ApiKeyExpired, to tell the holder of an expired key. Of admin token, API key and
        session cookie, only the first one present counts.
        """
        values = request.headers.getlist(API_KEY_HEADER)
        if ADMIN_TOKEN_HEADER in request.headers or not values:
            return cast(
                "Operator | MemberPrincipal", await self.caller(request, VerdictSource.PROXY)
            )
        if len(values) != 1:
            raise Unauthenticated
        return await self.api_key(values[0], self.origin(request, VerdictSource.PROXY))

    async def api_key(self, secret: str, origin: RequestOrigin) -> ApiKeyPrincipal:
        """The holder of the API key `secret`. Raises Unauthenticated, ApiKeyExpired."""
        return self.key_principal(await self._live_key(token_hash(secret)), origin)

    def key_principal(self, key: KeyScope, origin: RequestOrigin) -> ApiKeyPrincipal:
        """The holder of an unrevoked key. Notes its use. Raises ApiKeyExpired."""
        now = self._clock()
        # A key also ends by time, without a commit that would drop it from the cache.
        if key.expires_at is not None and now >= key.expires_at:
            raise ApiKeyExpired(value=format_ms(key.expires_at))
        self._key_use.record(key.key_id, now)
        return _named_in_logs(
            ApiKeyPrincipal(key.key_id, key.tenant_id, key.project_id, key.scopes, origin=origin)
        )

    async def delete_expired_sessions(self) -> None:
        """Delete sessions and sign-in links that ended long ago."""
        async with self._store.write() as work:
            await delete_expired_sessions(work.session, self.lifetimes, work.now)

    async def member(
        self, request: Request, entrance: RequestOrigin, *, keeps_alive: bool = True
    ) -> MemberPrincipal:
        """The member whose session `request` carries. Raises Unauthenticated.

        The session is in a cookie or, in the API, in a bearer token (RFC 6750), which then alone
        counts. Without `keeps_alive` the request does not extend the session, which is for those
        that a page sends periodically.
        """
        bearer = None
        if entrance.verdict_source is not VerdictSource.DASHBOARD:
            bearer = _bearer_token(request)
        token = request.cookies.get(SESSION_COOKIE) if bearer is None else bearer
        if not token:
            raise Unauthenticated
        now = self._clock()
        current = await self._session_of(token, now)
        # Browsers attach cookies to requests from other sites, but never a bearer token.
        is_foreign = bearer is None and is_cross_site(
            request.method,
            request.headers.get("origin"),
            request.headers.get("sec-fetch-site"),
            self._settings.origin,
            is_form=entrance.verdict_source is VerdictSource.DASHBOARD,
        )
        # Another site must not be able to keep a session alive.
        if keeps_alive and not is_foreign:
            await touch_session(self._store, current.entry, now)
        return _named_in_logs(
            _member_principal(
                current.entry, current.member, current.teams, entrance, is_cross_site=is_foreign
            )
        )

    async def _reading_key(self, request: Request, entrance: RequestOrigin) -> Caller | None:
        """The API key of `request` if it is live and has scopes, or None.

        Any other key is ignored here, so that a session beside it counts. Raises ApiKeyExpired.
        """
        values = request.headers.getlist(API_KEY_HEADER)
        if len(values) != 1:
            return None
        try:
            key = await self._live_key(token_hash(values[0]))
        except Unauthenticated:
            return None
        return self.key_principal(key, entrance) if key.scopes else None

    async def _live_key(self, hashed: str) -> KeyScope:
        """The unrevoked API key with this secret hash. Raises Unauthenticated."""

        def load(transaction: Transaction) -> KeyScope:
            key = find_live_key(transaction, hashed)
            if key is None:
                raise Unauthenticated
            return key

        return await self._store.cached_right(("key", hashed), load)

    async def _session_of(self, token: str, now: datetime) -> "_Session":
        """The live session of this token. Raises Unauthenticated."""
        hashed = token_hash(token)

        async def load(session: AsyncSession) -> _Session:
            signed_in = await find_session(
                session, Session.token_hash == hashed, self.lifetimes, now
            )
            if signed_in is None:
                raise Unauthenticated
            return _Session(*signed_in, await list_teams_of(session, signed_in[1].id))

        known = await self._store.cached(("session", hashed), load)
        # A session also ends by time, without a commit that would drop it from the cache.
        if now >= self.lifetimes.end_of(known.entry):
            raise Unauthenticated
        return known

    async def refreshed(self, session: AsyncSession, caller: Caller) -> Caller:
        """`caller` as currently stored in the database. Raises Unauthenticated."""
        # The admin token is not in the database, and keys can change nothing (`KEY_SCOPES`).
        if not isinstance(caller, MemberPrincipal):
            return caller
        return await self.refreshed_member(session, caller)

    async def refreshed_member(
        self, session: AsyncSession, caller: MemberPrincipal
    ) -> MemberPrincipal:
        """`caller` as currently stored in the database. Raises Unauthenticated."""
        signed_in = await find_session(
            session, Session.id == caller.session_id, self.lifetimes, self._clock()
        )
        if signed_in is None:
            raise Unauthenticated
        teams = await list_teams_of(session, caller.member_id)
        return _member_principal(
            *signed_in, teams, caller.origin, is_cross_site=caller.is_cross_site
        )

    def require_recent_sign_in(self, caller: Caller) -> None:
        """Raise SignInAgain if the caller is a member whose sign-in is too long ago.

        A stolen session alone must not be enough to gain lasting access. The admin token is no
        session, and no API key makes such changes.
        """
        recent = timedelta(seconds=self._settings.recent_sign_in_s)
        if not isinstance(caller, MemberPrincipal):
            return
        # One that lies ahead has the time of a wrong clock, and would be recent until then.
        if abs(self._clock() - caller.authenticated_at) >= recent:
            raise SignInAgain

    def origin(self, request: Request, verdict_source: VerdictSource) -> RequestOrigin:
        """The origin of `request`; checks no credentials."""
        address = source_ip(request, self._settings.trusted_proxies)
        return RequestOrigin(verdict_source, request_id(), address, user_agent=user_agent(request))


def _named_in_logs(principal: _Principal) -> _Principal:
    """`principal`, whose id the log lines of the current request have from now on."""
    structlog.contextvars.bind_contextvars(actor=principal.audit_context.actor)
    return principal


def _bearer_token(request: Request) -> str | None:
    """The token of an `Authorization: Bearer` header, or None without one.

    Other schemes are ignored: a proxy in front may require `Basic`. Several bearer tokens are
    refused.
    """
    tokens = [
        value.partition(" ")[2].strip()
        for value in request.headers.getlist("authorization")
        if value.lower().startswith("bearer ")
    ]
    if len(tokens) > 1:
        raise Unauthenticated
    return tokens[0] if tokens else None


@dataclass(frozen=True, slots=True)
class _Session:
    """A stored session with its member and the ids of the teams they administer."""

    entry: Session
    member: Member
    teams: frozenset[str]


def _member_principal(
    entry: Session,
    member: Member,
    teams: frozenset[str],
    origin: RequestOrigin,
    *,
    is_cross_site: bool,
) -> MemberPrincipal:
    return MemberPrincipal(
        session_id=entry.id,
        member_id=member.id,
        tenant_id=member.tenant_id,
        role=Role(member.role),
        identity_provider=member.identity_provider,
        authenticated_at=entry.authenticated_at or entry.created_at,
        admin_of=teams,
        origin=origin,
        is_cross_site=is_cross_site,
    )
