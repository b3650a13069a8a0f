"""Authorises requests to install: first the credential, then the organisation, then the right.

Key, token, organisation and bindings come from memory until something is committed. The next
request sees every change of them, made in any process.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog
from quart import Request

from analytics.model.instants import format_ms
from analytics.model.rows import AuditContext, VerdictSource
from service.access.authenticate import Authenticator
from service.access.authorization import Authorizer, token_request
from service.access.callers import ApiKeyPrincipal, RequestOrigin
from service.access.refusals import ApiKeyExpired
from service.ci.verifier.attribution import Attribution
from service.ci.verifier.verifier import Verifier
from service.core.clock import Clock
from service.core.errors import Unauthenticated
from service.core.loop_turns import assign_to
from service.core.secrets import token_hash
from service.packages.install_tokens.machine_tokens import PREFIX as MACHINE_PREFIX
from service.packages.install_tokens.machine_tokens import (
    MachinePrincipal,
    StoredMachineToken,
    find_machine_token,
)
from service.packages.install_tokens.tokens import PREFIX, StoredToken, find_token
from service.packages.refusals import (
    INSTALL_TOKEN_ENDED,
    INSTALL_TOKEN_EXPIRED,
    INSTALL_TOKEN_OF_ANOTHER_ORG,
    MACHINE_TOKEN_ENDED,
    InstallUnauthenticated,
)
from service.store.store import Store
from service.store.tables import Organisation
from service.store.transaction import Transaction

_Token = TypeVar("_Token", StoredToken, StoredMachineToken)


@dataclass(frozen=True, slots=True)
class InstallCredentials:
    """The secrets of a request to install; their `repr` does not show them.

    `secret` is an API key or an install token; `ci_tokens` are the CI tokens as sent, if any.
    """

    secret: str = field(repr=False)
    ci_tokens: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class InstallPrincipal:
    """A machine that installs, with its API key, an install token of that key, or a member's token.

    `secret_id` identifies the install token or the CI token; empty for a key alone.
    """

    key: ApiKeyPrincipal
    install_token_id: str | None
    secret_id: str

    @property
    def credential(self) -> str:
        """Identifies the key, token and attribution: requests that differ in one have another one.

        It tells the repeats of an install from another install.
        """
        binding_id = "" if self.ci is None else self.ci.binding_id
        return f"{self.key.key_id}/{self.secret_id}/{binding_id}"

    @property
    def tenant_id(self) -> str:
        """The organisation that the key belongs to."""
        return self.key.tenant_id

    @property
    def key_id(self) -> str:
        """The id of the API key (also that of an install token), or of the machine token."""
        return self.key.key_id

    @property
    def subject(self) -> str | None:
        """What rows of its installs are about: the CI job, or the member's machine; else None."""
        if self.ci is not None:
            return self.ci.ci.sub
        return self.key.key_id if isinstance(self.key, MachinePrincipal) else None

    @property
    def ci(self) -> Attribution | None:
        """The CI job that installs, or None if no trusted token proves one."""
        return self.key.origin.ci

    @property
    def audit_context(self) -> AuditContext:
        """The audit context, with the key as the actor, and the CI job if there is one."""
        return self.key.audit_context

    def with_key(self, key: ApiKeyPrincipal) -> "InstallPrincipal":
        """A copy with `key`, whose CI job was revalidated."""
        return replace(self, key=key)


def install_principal(
    key: ApiKeyPrincipal, install_token_id: str | None, ci_tokens: tuple[str, ...]
) -> InstallPrincipal:
    """The principal of `key`, sent with this install token or these CI tokens.

    A rejected CI token is ignored: a client that sends a new one each time gets no extra rows.
    """
    secret_id = install_token_id or ""
    if ci_tokens and key.origin.ci is not None:
        secret_id = hashlib.sha256(ci_tokens[0].encode("utf-8", "surrogatepass")).hexdigest()
    return InstallPrincipal(key, install_token_id, secret_id)


@dataclass(frozen=True, slots=True)
class InstallAuthorizer:
    """Authorises requests to install."""

    _authenticator: Authenticator
    _access: Authorizer
    _verifier: Verifier
    _store: Store
    _clock: Clock

    async def authorize(
        self, request: Request, slug: str, credentials: InstallCredentials
    ) -> tuple[InstallPrincipal, Organisation]:
        """Who installs with `credentials`, and the organisation `slug`.

        If a CI token is sent, it alone decides the attribution: if it is rejected, the install goes
        on unattributed, and the rejection is recorded. Otherwise an install token is attributed to
        its job for as long as a binding trusts that. Raises InstallUnauthenticated (401),
        OrgNotFound (404), Forbidden (403), in this order.
        """
        origin = self._authenticator.origin(request, VerdictSource.PROXY)
        if credentials.secret.startswith(MACHINE_PREFIX):
            machine = await self._live_machine(credentials.secret, origin)
            return await self._with_rights(machine, slug, credentials.ci_tokens)
        if not credentials.secret.startswith(PREFIX):
            return await self._by_key(credentials, origin, slug)
        # Before the organisation: strangers must not learn which slugs exist.
        token = await self._live_token(credentials.secret)
        key = self._key_of(token, origin)
        org = await self._access.org(slug)
        if not key.belongs_to(org):
            raise INSTALL_TOKEN_OF_ANOTHER_ORG
        key.require_install_rights(org)
        await assign_to(org.id)
        if credentials.ci_tokens:
            key = await self._access.attributed(key, org, credentials.ci_tokens)
        else:
            key = key.with_ci(await self._verifier.recall(token.job, token_request(key, org)))
        return install_principal(key, token.id, credentials.ci_tokens), org

    async def revalidate(self, principal: InstallPrincipal, slug: str) -> InstallPrincipal:
        """`principal` with its CI job if a binding of the organisation, read again, trusts it now.

        Needed right before a row is stored: an upstream may have taken long to answer.
        """
        org = await self._access.org(slug)
        return principal.with_key(await self._access.revalidated_ci(principal.key, org))

    async def _by_key(
        self, credentials: InstallCredentials, origin: RequestOrigin, slug: str
    ) -> tuple[InstallPrincipal, Organisation]:
        try:
            key = await self._authenticator.api_key(credentials.secret, origin)
        # Before its base class: the text tells the holder that the key was right but is too old.
        except ApiKeyExpired as error:
            raise InstallUnauthenticated(error.text) from error
        except Unauthenticated as error:
            raise InstallUnauthenticated from error
        return await self._with_rights(key, slug, credentials.ci_tokens)

    async def _with_rights(
        self, key: ApiKeyPrincipal, slug: str, ci_tokens: tuple[str, ...]
    ) -> tuple[InstallPrincipal, Organisation]:
        """`key` in the organisation `slug`, if it may install there, with the job of a CI token."""
        org = await self._access.org(slug)
        key.require_install_rights(org)
        key = await self._access.attributed(key, org, ci_tokens)
        return install_principal(key, None, ci_tokens), org

    async def _live_machine(self, secret: str, origin: RequestOrigin) -> MachinePrincipal:
        """The machine with this token. Raises InstallUnauthenticated, MACHINE_TOKEN_ENDED."""
        token = await self._stored("machine_token", secret, find_machine_token)
        # A token also ends by time, without a commit that would drop it from the cache.
        if token.has_ended or self._clock() >= token.expires_at:
            raise MACHINE_TOKEN_ENDED
        structlog.contextvars.bind_contextvars(actor=token.actor)
        return MachinePrincipal(
            token.id, token.tenant_id, None, actor=token.actor, role=token.role, origin=origin
        )

    async def _live_token(self, secret: str) -> StoredToken:
        """The unexpired install token with this value. Raises InstallUnauthenticated."""
        token = await self._stored("install_token", secret, find_token)
        # A token also ends by time, without a commit that would drop it from the cache.
        if self._clock() >= token.expires_at:
            raise INSTALL_TOKEN_EXPIRED(value=format_ms(token.expires_at))
        return token

    async def _stored(
        self, kind: str, secret: str, find: Callable[[Transaction, str], _Token | None]
    ) -> _Token:
        """The token of this kind and value, which may have ended. Raises InstallUnauthenticated."""
        hashed = token_hash(secret)

        def load(transaction: Transaction) -> _Token:
            token = find(transaction, hashed)
            if token is None:
                raise InstallUnauthenticated
            return token

        return await self._store.cached_right((kind, hashed), load)

    def _key_of(self, token: StoredToken, origin: RequestOrigin) -> ApiKeyPrincipal:
        """The API key of `token`, if it still works. Raises INSTALL_TOKEN_ENDED."""
        # A token is no stronger than its key: revoking the key ends every install with it.
        if token.key_is_revoked:
            raise INSTALL_TOKEN_ENDED
        try:
            return self._authenticator.key_principal(token.key, origin)
        except ApiKeyExpired as error:
            raise INSTALL_TOKEN_ENDED from error
