"""What tokens say, in two types: what anybody could have written, and what an issuer signed."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnverifiedClaims:
    """What a token says of itself. Anybody can write one: nothing of it is known to be true."""

    members: Mapping[str, object]

    def text(self, name: str | None) -> str | None:
        """The member `name`, or None unless it is there as a string that is not empty."""
        value = None if name is None else self.members.get(name)
        return value if isinstance(value, str) and value else None

    def identifier(self, name: str | None) -> str | None:
        """The member `name` as text: a string that is not empty or an integer, else None."""
        value = None if name is None else self.members.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(name)


@dataclass(frozen=True, slots=True)
class Claims(UnverifiedClaims):
    """What the issuer says: claims under a signature that held. Only rule 6 makes them."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A JWS taken apart (RFC 7515, 7.1): `compact` is the whole of it, as it was sent."""

    compact: str
    unverified_header: Mapping[str, object]
    unverified_claims: UnverifiedClaims
