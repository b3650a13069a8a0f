"""What one process keeps for signing people in: the providers, their keys, and who tries."""

import httpx

from service.clock import Clock
from service.issuers.key_source import KeySource
from service.metrics import Metrics
from service.settings import Settings
from service.sign_in.exchange import Exchange
from service.sign_in.providers import load_providers
from service.sign_in.rate_limit import Attempts
from service.sign_in.relying_party import find_relying_party
from service.sign_in.signed_cookie import Signer


class SignInServices:
    """Everything that sign-ins share. Raises InvalidSetting."""

    def __init__(
        self, settings: Settings, http: httpx.AsyncClient, clock: Clock, metrics: Metrics
    ) -> None:
        self.providers = load_providers(settings)
        issuers = [provider.id_tokens for provider in self.providers.values()]
        self._keys = KeySource(
            {issuer.url: issuer for issuer in issuers if issuer is not None}, http, clock, metrics
        )
        self.exchange = Exchange(http, self._keys, clock)
        self.attempts = Attempts(clock)
        self.flows = Signer(settings.secret_key, "sign-in flow")
        self.choices = Signer(settings.secret_key, "sign-in choice")
        self.relying_party = find_relying_party(settings)
        self.passkeys = Signer(settings.secret_key, "sign-in by passkey")
        self.new_passkeys = Signer(settings.secret_key, "new passkey")

    async def close(self) -> None:
        """End what waits for a provider's keys."""
        await self._keys.close()
