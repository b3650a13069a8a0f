"""An issuer's published keys (RFC 7517): which of them may verify its tokens, and why not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from joserfc.jwk import ECKey, OKPKey, RSAKey

PublicKey = RSAKey | ECKey | OKPKey


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the algorithms it may be used with."""

    key: PublicKey
    algorithms: frozenset[str]


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The keys of one issuer that may verify, by `kid`.

    `refused` says of the others why not; `fault` why there are none at all, or none newer.
    """

    by_kid: Mapping[str, SigningKey] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
