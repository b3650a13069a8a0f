"""Authorises requests to install: first the credential, then the organisation, then the right.

Key, token, organisation and bindings come from memory until something is committed. The next
request sees every change of them, made in any process.
"""

from quart import Request

from analytics.model.instants import format_ms
from analytics.model.rows import VerdictSource
from service.access.authenticate import Authenticator
from service.access.authorization import Authorizer, token_request
from service.access.callers import ApiKeyPrincipal, RequestOrigin
from service.ci.verifier.verifier import Verifier
from service.core.clock import Clock
from service.core.errors import (
    ApiKeyExpired,
    InstallTokenEnded,
    InstallTokenExpired,
    InstallTokenOfAnotherOrg,
    InstallUnauthenticated,
    Unauthenticated,
)
from service.core.loop_turns import assign_to
from service.core.secrets import token_hash
from service.packages.install_tokens.principal import (
    InstallCredentials,
    InstallPrincipal,
    install_principal,
)
from service.packages.install_tokens.tokens import PREFIX, StoredToken, find_token
from service.store.store import Store
from service.store.tables import Organisation
from service.store.transaction import Transaction


class InstallAuthorizer:
    """Authorises requests to install."""

    def __init__(
        self,
        authenticator: Authenticator,
        access: Authorizer,
        verifier: Verifier,
        store: Store,
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._access = access
        self._verifier = verifier
        self._store = store
        self._clock = clock

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
        if not credentials.secret.startswith(PREFIX):
            return await self._by_key(credentials, origin, slug)
        # Before the organisation: strangers must not learn which slugs exist.
        token = await self._live_token(credentials.secret)
        key = self._key_of(token, origin)
        org = await self._access.org(slug)
        if not key.belongs_to(org):
            raise InstallTokenOfAnotherOrg
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
        org = await self._access.org(slug)
        key.require_install_rights(org)
        key = await self._access.attributed(key, org, credentials.ci_tokens)
        return install_principal(key, None, credentials.ci_tokens), org

    async def _live_token(self, secret: str) -> StoredToken:
        """The unexpired install token with this value. Raises InstallUnauthenticated."""
        hashed = token_hash(secret)

        def load(transaction: Transaction) -> StoredToken:
            token = find_token(transaction, hashed)
            if token is None:
                raise InstallUnauthenticated
            return token

        token = await self._store.cached_right(("install_token", hashed), load)
        # A token also ends by time, without a commit that would drop it from the cache.
        if self._clock() >= token.expires_at:
            raise InstallTokenExpired(value=format_ms(token.expires_at))
        return token

    def _key_of(self, token: StoredToken, origin: RequestOrigin) -> ApiKeyPrincipal:
        """The API key of `token`, if it still works. Raises InstallTokenEnded."""
        # A token is no stronger than its key: revoking the key ends every install with it.
        if token.key_is_revoked:
            raise InstallTokenEnded
        try:
            return self._authenticator.key_principal(token.key, origin)
        except ApiKeyExpired as error:
            raise InstallTokenEnded from error
