"""Who somebody is, in the words of their identity provider."""

from dataclasses import dataclass

from analytics.model.org_envelopes import IdentityProviderName
from service.sign_in.providers import Provider
from service.verifier.claims import Claims

_YES = frozenset({True, "1", "true"})


@dataclass(frozen=True, slots=True)
class Identity:
    """An account at a provider: `subject`, unique within `namespace` and never given out again.

    `is_verified` says that the provider has seen that `email` is theirs; `is_of_domain` that,
    beyond that, whoever holds the address's domain lets them have it.
    """

    provider: IdentityProviderName
    namespace: str
    subject: str
    email: str | None = None
    is_verified: bool = False
    is_of_domain: bool = False

    @property
    def domain(self) -> str | None:
        """The domain of their address in lower case, or None if it is not as on the wire: ASCII."""
        _, _, domain = (self.email or "").rpartition("@")
        return domain.lower() if domain and domain.isascii() else None


def identity_of(provider: Provider, subject: str, claims: Claims) -> Identity:
    """Whom the checked claims of an id token describe.

    Google says `email_verified` of private accounts, too, whose address may have been a company's
    once; `hd` says that the company's Workspace runs the account. Microsoft says of an address
    neither, unless the app asks for `xms_edov`: anybody who runs a tenant can write what they like.
    """
    email = claims.text("email")
    if provider.name == "microsoft":
        is_verified = _is_yes(claims.members.get("xms_edov"))
        is_of_domain = is_verified
    else:
        is_verified = _is_yes(claims.members.get("email_verified"))
        is_of_domain = is_verified and claims.text("hd") is not None
    return Identity(
        provider.name,
        claims.text("iss") or provider.namespace,
        subject,
        email,
        is_verified=is_verified,
        is_of_domain=is_of_domain,
    )


def _is_yes(value: object) -> bool:
    """Providers say yes as a boolean, as a number and as text."""
    return isinstance(value, bool | int | str) and value in _YES
