"""The services of sign-in routes, shared by all requests of a process."""

import httpx2
from quart import request

from analytics.model.rows import VerdictSource
from service.access.authenticate import Authenticator
from service.access.authorization import Authorizer
from service.access.callers import RequestOrigin
from service.access.sign_in.cookies import SignInCookies
from service.access.sign_in.exchange import Exchange
from service.access.sign_in.providers import load_providers
from service.access.sign_in.rate_limit import (
    DEVICE_POLLS_MAX,
    DEVICE_POLLS_PER_ADDRESS_MAX,
    Attempts,
)
from service.access.sign_in.relying_party import find_relying_party
from service.access.sign_in.signed_cookie import Signer
from service.ci.issuers.key_source import KeySource
from service.core.clock import Clock
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.store.store import Store


class SignInServices:
    """Identity providers, passkeys and sessions. Raises InvalidSetting."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        authenticator: Authenticator,
        access: Authorizer,
        http: httpx2.AsyncClient,
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.store = store
        self.authenticator = authenticator
        self.access = access
        self.providers = load_providers(settings)
        issuers = [provider.id_tokens for provider in self.providers.values()]
        self._keys = KeySource(
            {issuer.url: issuer for issuer in issuers if issuer is not None}, http, clock, metrics
        )
        self.exchange = Exchange(http, self._keys, clock)
        self.attempts = Attempts(clock)
        self.device_polls = Attempts(clock, DEVICE_POLLS_PER_ADDRESS_MAX, DEVICE_POLLS_MAX)
        self.cookies = SignInCookies(settings)
        self.flows = Signer(settings.secret_key, "sign-in flow")
        self.choices = Signer(settings.secret_key, "sign-in choice")
        self.relying_party = find_relying_party(settings)
        self.passkeys = Signer(settings.secret_key, "sign-in by passkey")
        self.new_passkeys = Signer(settings.secret_key, "new passkey")

    def attempt(self, source: VerdictSource = VerdictSource.DASHBOARD) -> RequestOrigin:
        """The origin of the current request, counted as one step from its address.

        Raises TOO_MANY_SIGN_INS.
        """
        origin = self.authenticator.origin(request, source)
        self.attempts.count(origin.source_ip)
        return origin

    async def close(self) -> None:
        """Stop fetching providers' keys."""
        await self._keys.close()
