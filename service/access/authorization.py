"""Authorisation of requests: the caller, then the organisation, then the permission."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from quart import g, request
from quart.globals import request_ctx
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.rows import VerdictSource
from service.access.authenticate import Authenticator
from service.access.callers import (
    ApiKeyPrincipal,
    Caller,
    IngestPrincipal,
    MemberPrincipal,
    Operator,
    Principal,
    is_allowed,
)
from service.access.refusals import CROSS_SITE
from service.access.roles import Capability
from service.ci.verifier.verifier import TokenRequest, Verifier
from service.core.errors import Unauthenticated
from service.core.fair_queue import CALLER
from service.core.header_names import CI_TOKEN_HEADER
from service.core.loop_turns import assign_to
from service.core.request_context import request_id
from service.store.organisations import get_org_by_id, read_org
from service.store.store import Store, UnitOfWork
from service.store.tables import Member, Organisation

_Principal = TypeVar("_Principal", bound=Principal)


class Authorizer:
    """Authorises the current request. Refuses with 401, then 404, then 403."""

    def __init__(self, authenticator: Authenticator, store: Store, verifier: Verifier) -> None:
        self._authenticator = authenticator
        self._store = store
        self._verifier = verifier

    async def authorize_ingest(self, slug: str) -> tuple[IngestPrincipal, Organisation]:
        """The sender of audit rows in the current request, and the organisation `slug`.

        Raises Unauthenticated (401), OrgNotFound (404), Forbidden (403), in this order.
        """
        # Not the proxy `request`: each of a dozen attribute accesses would resolve it again.
        principal = await self._authenticator.principal(request_ctx.request)
        org = await self.org(slug)
        principal = await self.attributed(principal, org, _ci_tokens())
        principal.require_sending_rights(org)
        return principal, org

    async def authorize(
        self,
        slug: str,
        capability: Capability,
        origin: VerdictSource = VerdictSource.ADMIN_API,
        *,
        alternative: Capability | None = None,
        keeps_alive: bool = True,
    ) -> tuple[Caller, Organisation]:
        """The caller of the current request and the organisation `slug`.

        They must have `capability` there, or the `alternative` to it.

        Raises Unauthenticated (401), OrgNotFound (404), Forbidden (403), in this order, before any
        other part of the request is read. Automatic requests of a page must pass
        `keeps_alive=False`, so that an unused session ends.
        """
        caller, org = await self._authenticate(slug, origin, keeps_alive=keeps_alive)
        if alternative is None or not is_allowed(caller.require, alternative, org):
            caller.require(capability, org)
        return caller, org

    async def authorize_member(
        self, slug: str, origin: VerdictSource = VerdictSource.DASHBOARD
    ) -> tuple[Caller, Organisation]:
        """The caller of the current request and their organisation `slug`, for any role.

        For what every member may see. Raises Unauthenticated (401), OrgNotFound (404), Forbidden
        (403), in this order.
        """
        caller, org = await self._authenticate(slug, origin)
        caller.require_membership(org)
        return caller, org

    async def authenticate(self) -> Caller:
        """The caller of the current API request, with any rights. Raises Unauthenticated."""
        return await self._authenticator.caller(request)

    async def authorize_operator(self) -> Operator:
        """The operator, for what belongs to no organisation.

        Raises Unauthenticated (401), OPERATOR_ONLY (403), in this order.
        """
        return await self._authenticator.operator(request)

    async def authorize_self(
        self, origin: VerdictSource = VerdictSource.DASHBOARD
    ) -> MemberPrincipal:
        """The member whose session the current request carries, for their own settings.

        Raises Unauthenticated (401), also for credentials without a session, and CROSS_SITE (403).
        """
        caller = await self._authenticator.caller(request, origin)
        if not isinstance(caller, MemberPrincipal):
            raise Unauthenticated
        if caller.is_cross_site:
            raise CROSS_SITE
        await assign_to(caller.tenant_id)
        return caller

    def require_recent_sign_in(self, caller: Caller) -> None:
        """Raise SignInAgain unless `caller` has signed in recently, or needs no sign-in."""
        self._authenticator.require_recent_sign_in(caller)

    async def reauthorize_self(
        self, session: AsyncSession, caller: MemberPrincipal, *, is_sensitive: bool = False
    ) -> tuple[MemberPrincipal, Member]:
        """`caller` and their membership, re-read inside the transaction that makes a change.

        Raises Unauthenticated if their session has ended meanwhile, and if the change
        `is_sensitive`, SignInAgain unless they have signed in recently.
        """
        present = await self._authenticator.refreshed_member(session, caller)
        if is_sensitive:
            self._authenticator.require_recent_sign_in(present)
        return present, await session.get_one(Member, present.member_id)

    @asynccontextmanager
    async def change(
        self,
        caller: Caller,
        org: Organisation,
        capability: Capability,
        *,
        is_sensitive: bool = False,
    ) -> AsyncIterator[tuple[UnitOfWork, Caller, Organisation]]:
        """One write transaction, and `caller` and `org` as they are in it, see `reauthorize`.

        A change `is_sensitive` that gives access: it needs a recent sign-in. Raises SignInAgain.
        """
        async with self._store.write() as work:
            present, present_org = await self.reauthorize(work.session, caller, org, capability)
            if is_sensitive:
                self._authenticator.require_recent_sign_in(present)
            yield work, present, present_org

    @asynccontextmanager
    async def change_as_member(
        self, caller: Caller, org: Organisation
    ) -> AsyncIterator[tuple[UnitOfWork, Caller, Organisation]]:
        """As `change`, for what every member may do."""
        async with self._store.write() as work:
            present = await self._authenticator.refreshed(work.session, caller)
            present_org = await get_org_by_id(work.session, org.id)
            present = await self.revalidated_ci(present, present_org)
            present.require_membership(present_org)
            yield work, present, present_org

    async def reauthorize(
        self, session: AsyncSession, caller: Caller, org: Organisation, capability: Capability
    ) -> tuple[Caller, Organisation]:
        """`caller` and `org`, re-read inside the transaction that makes a change.

        A client may take long to send the body. Meanwhile a session may have ended, or a role or
        binding may have been revoked. Raises Unauthenticated, OrgNotFound, Forbidden.
        """
        present = await self._authenticator.refreshed(session, caller)
        present_org = await get_org_by_id(session, org.id)
        present = await self.revalidated_ci(present, present_org)
        present.require(capability, present_org)
        return present, present_org

    async def _authenticate(
        self, slug: str, origin: VerdictSource, *, keeps_alive: bool = True
    ) -> tuple[Caller, Organisation]:
        # Before the organisation: strangers must not learn which slugs exist.
        caller = await self._authenticator.caller(request, origin, keeps_alive=keeps_alive)
        CALLER.set(caller.limited_as)
        org = await self.org(slug)
        caller = await self.attributed(caller, org, _ci_tokens())
        g.caller = caller, org  # once it is answered, it is known whether rows were read
        return caller, org

    async def org(self, slug: str) -> Organisation:
        """The organisation `slug`. Raises OrgNotFound."""
        return await self._store.cached_right(("org", slug), partial(read_org, slug=slug))

    async def attributed(
        self, principal: _Principal, org: Organisation, values: Sequence[str]
    ) -> _Principal:
        """`principal` with the CI job that the token in `values` proves, if it is valid.

        From here on the request takes the turns of `org`, if the credential belongs to it.
        If the caller's credential belongs to another organisation, the token is not verified.
        """
        if not principal.belongs_to(org):
            return principal
        await assign_to(org.id)
        if not values:
            return principal
        ci_job = await self._verifier.attribute(values, token_request(principal, org))
        return principal.with_ci(ci_job)

    async def revalidated_ci(self, principal: _Principal, org: Organisation) -> _Principal:
        """`principal` with its CI job if `org`, just re-read, still trusts it."""
        ci = principal.origin.ci
        if ci is None:
            return principal
        return principal.with_ci(await self._verifier.revalidate(ci, org))


def _ci_tokens() -> list[str]:
    return request.headers.getlist(CI_TOKEN_HEADER)


def token_request(principal: Principal, org: Organisation) -> TokenRequest:
    """What the verifier needs to know about the current request, from `principal` to `org`."""
    project_id = principal.project_id if isinstance(principal, ApiKeyPrincipal) else None
    return TokenRequest(org, project_id, request_id())
