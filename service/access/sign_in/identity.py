"""A user's identity, as asserted by their identity provider."""

from dataclasses import dataclass

from service.access.sign_in.providers import Provider
from service.ci.verifier.claims import Claims
from service.core.settings import IdentityProviderName

_YES = frozenset({True, "1", "true"})


@dataclass(frozen=True, slots=True)
class Identity:
    """An account at a provider: `subject`, unique within `namespace` and never reused.

    `is_verified` means that the provider has verified that `email` is the user's; `is_of_domain`
    means in addition that the owner of the address's domain manages the account.
    """

    provider: IdentityProviderName
    namespace: str
    subject: str
    email: str | None = None
    is_verified: bool = False
    is_of_domain: bool = False

    @property
    def domain(self) -> str | None:
        """The domain of the address in lower case, or None if it is not ASCII, as sent in mail."""
        _, _, domain = (self.email or "").rpartition("@")
        return domain.lower() if domain and domain.isascii() else None


def identity_of(provider: Provider, subject: str, claims: Claims) -> Identity:
    """The identity in the verified claims of an id token, as the provider's tokens are read."""
    email = claims.text("email")
    is_verified = _is_yes(claims.members.get(provider.verified_claim))
    is_managed = provider.domain_claim is None or claims.text(provider.domain_claim) is not None
    return Identity(
        provider.name,
        claims.text("iss") or provider.namespace,
        subject,
        email,
        is_verified=is_verified,
        is_of_domain=is_verified and is_managed,
    )


def _is_yes(value: object) -> bool:
    """True for the booleans, numbers and texts that providers use for yes."""
    return isinstance(value, bool | int | str) and value in _YES
