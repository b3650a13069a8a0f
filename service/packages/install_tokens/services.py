"""Dependencies of the endpoint for install tokens."""

from dataclasses import dataclass

from service.packages.install_tokens.exchange import Exchange


@dataclass(frozen=True, slots=True)
class InstallTokenServices:
    """Dependencies for issuing install tokens."""

    exchange: Exchange
