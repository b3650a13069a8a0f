"""Types that separate unverified token contents from claims with a valid signature."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnverifiedClaims:
    """The claims of a token whose signature was not verified: they may be forged."""

    members: Mapping[str, object]

    def text(self, name: str | None) -> str | None:
        """The member `name` if it is a non-empty string, else None."""
        value = None if name is None else self.members.get(name)
        return value if isinstance(value, str) and value else None

    def identifier(self, name: str | None) -> str | None:
        """The member `name` as text if it is a non-empty string or an integer, else None."""
        value = None if name is None else self.members.get(name)
        # In Python `true` is an integer, and would be the id "True".
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(name)


@dataclass(frozen=True, slots=True)
class Claims(UnverifiedClaims):
    """Claims with a valid signature of the issuer: of rule 6, or kept of such by ProvedJob."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A parsed JWS (RFC 7515, 7.1); `compact` is the token as it was sent."""

    compact: str
    unverified_header: Mapping[str, object]
    unverified_claims: UnverifiedClaims
