"""An issuer's published keys (RFC 7517): which of them may verify tokens, and why others may not.

Key sets are external input. Keys are checked one by one, so that a weak or unsupported key does not
affect the others. Only public members are read.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import isqrt
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.util import base64_to_int

from analytics.model.strict_json import NotStrictJson, strict_object

PublicKey = RSAKey | ECKey | OKPKey

KEYS_MAX: Final = 100
"""How many published keys are read."""

RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
RSA_EXPONENT_BITS_MAX: Final = 64
ROCA_GENERATOR: Final = 65_537
ROCA_PRIME_MAX: Final = 701
"""The 126th prime: enough for faulty moduli of 2,048 bits, and so for longer ones."""

_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVE_ALGORITHMS: Final = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("OKP", "Ed25519"): "Ed25519",
}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key and the algorithms it may be used with."""

    key: PublicKey
    algorithms: frozenset[str]


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The keys of one issuer that may verify tokens, by `kid`.

    `refused` holds the reason for each other key; `fault` why there are no keys, or no newer ones.
    """

    by_kid: Mapping[str, SigningKey] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None


class KeyFault(Exception):
    """Why an issuer's keys are unavailable; the text is for the log."""


class _Refused(Exception):
    """Why one published key may not verify tokens."""


def parse_jwks(raw: bytes, algorithms: Collection[str]) -> SigningKeys:
    """The keys of a JWK Set that may verify under `algorithms`. Raises KeyFault if there are none.

    Keys that share a `kid` are all refused, because the choice would be ambiguous.
    """
    entries = _entries(raw)
    published = Counter(kid for entry in entries if (kid := _kid(entry)) is not None)
    by_kid: dict[str, SigningKey] = {}
    refused: dict[str, str] = {}
    for entry in entries[:KEYS_MAX]:
        kid = _kid(entry)
        if kid is None:
            continue
        try:
            # All of the set are counted, including those beyond KEYS_MAX.
            if published[kid] > 1:
                raise _Refused("its kid is published more than once")
            by_kid[kid] = _signing_key(entry, frozenset(algorithms))
        except _Refused as reason:
            refused[kid] = f"key {kid!r} may not verify: {reason}"
    if not by_kid:
        raise KeyFault("; ".join(["no usable key published", *refused.values()]))
    return SigningKeys(by_kid, refused)


def _entries(raw: bytes) -> list[Any]:
    try:
        entries = strict_object(raw).get("keys")
    except NotStrictJson as error:
        raise KeyFault(f"the key set is {error}") from error
    if not isinstance(entries, list):
        raise KeyFault("the key set has no list of keys")
    return entries


def _kid(entry: object) -> str | None:
    """The id by which tokens refer to the key, or None: such a key cannot be used."""
    kid = entry.get("kid") if isinstance(entry, dict) else None
    return kid if isinstance(kid, str) and kid else None


def _signing_key(jwk: Mapping[str, Any], pinned: frozenset[str]) -> SigningKey:
    # Purpose and algorithm first: nothing is computed with a key that would be refused anyway.
    _check_purpose(jwk)
    algorithms = _algorithms(jwk, pinned)
    try:
        return SigningKey(_public_key(jwk), algorithms)
    except (JoseError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _Refused(f"it is damaged: {error}") from error


def _check_purpose(jwk: Mapping[str, Any]) -> None:
    """Refuse keys declared for anything but signatures (RFC 7517, 4.2 and 4.3)."""
    if jwk.get("use", "sig") != "sig":
        raise _Refused("its use is not sig")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise _Refused("its key_ops do not have verify")


def _algorithms(jwk: Mapping[str, Any], pinned: frozenset[str]) -> frozenset[str]:
    """The `pinned` algorithms that fit the key's type and its `alg`, if it has one."""
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if kind == "RSA":
        fitting = _RSA_ALGORITHMS
    elif isinstance(kind, str) and isinstance(curve, str):
        fitting = frozenset({_CURVE_ALGORITHMS.get((kind, curve), "")})
    else:
        fitting = frozenset()
    # Pinned to the type of the key: a token's `alg` must not turn it into another kind of key (RFC
    # 8725, 2.1).
    algorithms = fitting & pinned
    if "alg" in jwk:
        algorithms = frozenset(name for name in algorithms if name == jwk["alg"])
    if not algorithms:
        named = ", ".join(f"{name} {jwk[name]!r}" for name in ("kty", "crv", "alg") if name in jwk)
        raise _Refused(f"{named or 'no kty'} is not for {' or '.join(sorted(pinned))}")
    return algorithms


def _public_key(jwk: Mapping[str, Any]) -> PublicKey:
    """The key from its public members; other members, such as a private part, are dropped."""
    match jwk["kty"]:
        case "RSA":
            public = _members(jwk, "n", "e")
            _check_rsa(base64_to_int(public["n"]), base64_to_int(public["e"]))
            return RSAKey.import_key(public)
        case "EC":
            return ECKey.import_key(_members(jwk, "crv", "x", "y"))
        case _:
            # Ed25519 alone gets here: `_algorithms` refuses every other type and curve.
            return OKPKey.import_key(_members(jwk, "crv", "x"))


def _members(jwk: Mapping[str, Any], *names: str) -> dict[str, Any]:
    public = {name: jwk.get(name) for name in ("kty", *names)}
    if not all(isinstance(value, str) for value in public.values()):
        raise _Refused(f"not all of {', '.join(names)} are there as strings")
    return public


def _check_rsa(modulus: int, exponent: int) -> None:
    """Refuse weak parameters before computing with them: huge numbers would block a processor.

    With an exponent of 1 every signature would be valid.
    """
    bits = modulus.bit_length()
    if not RSA_BITS_MIN <= bits <= RSA_BITS_MAX or modulus % 2 == 0:
        raise _Refused(f"its modulus of {bits} bits is too weak, too slow or even")
    if exponent < 3 or exponent % 2 == 0 or exponent.bit_length() > RSA_EXPONENT_BITS_MAX:
        raise _Refused("its exponent is not odd, at least 3 and small")
    if _is_roca(modulus):
        raise _Refused("its modulus was made with a faulty generator (ROCA, CVE-2017-15361)")


def _is_roca(modulus: int) -> bool:
    """True for moduli of Infineon's library, which can be factored (CVE-2017-15361).

    Nemec et al., "The Return of Coppersmith's Attack", CCS 2017, section 3.3: both primes, and so
    the modulus, are powers of 65537 modulo each of at least the 126 smallest primes. A random
    modulus has this property with a probability of 2^-154.
    """
    return all(
        modulus % prime and pow(modulus, order, prime) == 1 for prime, order in _subgroup_orders()
    )


@cache
def _subgroup_orders() -> list[tuple[int, int]]:
    """The odd ones of the 126 smallest primes, each with the order of 65537 modulo it.

    The residues modulo a prime form a cyclic group, so the powers of 65537 are exactly the elements
    whose order divides that of 65537.
    """
    primes = [n for n in range(3, ROCA_PRIME_MAX + 1) if all(n % d for d in range(2, isqrt(n) + 1))]
    return [(prime, _order(ROCA_GENERATOR % prime, prime)) for prime in primes]


def _order(number: int, prime: int) -> int:
    power, order = number, 1
    while power != 1:
        power, order = power * number % prime, order + 1
    return order
