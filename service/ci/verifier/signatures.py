"""Signature verification; the only module that passes a token to joserfc.

The header can only select, by name, among what is pinned: it never supplies a key, an algorithm or
an extension (RFC 8725, 3.1).
"""

from collections.abc import Collection
from functools import cache
from typing import Final

from joserfc import jws
from joserfc.errors import BadSignatureError, JoseError

from service.ci.issuers.jwks import PublicKey, SigningKey, SigningKeys
from service.ci.verifier.claims import Claims, UnverifiedToken
from service.ci.verifier.parsing import TOKEN_CHARS_MAX

_EXTENSIONS: Final = ("crit", "b64")


class SignatureFault(Exception):
    """Why a signature is not accepted; the text may repeat contents of the token."""


def unverified_kid(token: UnverifiedToken, algorithms: Collection[str]) -> str | None:
    """The `kid` to look up, or None if no key could make the token valid."""
    try:
        return _unverified_choice(token, algorithms)[1]
    except SignatureFault:
        return None


def check_signature(
    token: UnverifiedToken, algorithms: Collection[str], keys: SigningKeys
) -> Claims:
    """The claims of `token`, signed with one of `keys` and one of `algorithms`.

    Raises SignatureFault.
    """
    algorithm, kid = _unverified_choice(token, algorithms)
    signing_key = _find(keys, kid)
    # An accepted algorithm must not be used with a key of another kind (RFC 8725, 3.1).
    if algorithm not in signing_key.algorithms:
        raise SignatureFault(f"key {kid!r} is not for {algorithm}")
    try:
        _verify(token, algorithm, signing_key.key)
    except (JoseError, ValueError, TypeError) as error:
        raise SignatureFault(f"{type(error).__name__}: {error}") from error
    return Claims(token.unverified_claims.members)


def _verify(token: UnverifiedToken, algorithm: str, key: PublicKey) -> None:
    """Raise JoseError unless `key` signed the token with `algorithm`.

    Passes the parts to the library, already decoded by the stricter parser: decoding them again
    would take longer than the signature itself.
    """
    registry = _registry(algorithm)
    header, payload, signature = token.compact.encode().split(b".")
    registry.validate_header_size(header)
    registry.validate_signature_size(signature)
    parts = jws.CompactSignature(dict(token.unverified_header), payload)
    parts.segments.update({"header": header, "payload": payload, "signature": signature})
    if not jws.validate_compact(parts, key, registry=registry):
        raise BadSignatureError


def _unverified_choice(token: UnverifiedToken, algorithms: Collection[str]) -> tuple[str, str]:
    """The pinned algorithm and the `kid` in the header."""
    header = token.unverified_header
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise SignatureFault(f"alg {algorithm!r} is not one of {', '.join(algorithms)}")
    # They change what is signed or how it is checked (RFC 7515, 4.1.11; RFC 7797, 3).
    extensions = [name for name in _EXTENSIONS if name in header]
    if extensions:
        raise SignatureFault(f"{' and '.join(extensions)} in the header")
    if not isinstance(kid, str) or not kid:
        raise SignatureFault("no kid in the header")
    return algorithm, kid


def _find(keys: SigningKeys, kid: str) -> SigningKey:
    signing_key = keys.by_kid.get(kid)
    if signing_key is None:
        unpublished = f"key {kid!r} is not published by the issuer"
        raise SignatureFault(keys.refused.get(kid) or keys.fault or unpublished)
    return signing_key


@cache
def _registry(algorithm: str) -> jws.JWSRegistry:
    """A registry with only this algorithm, and strict header checks."""
    registry = jws.JWSRegistry(algorithms=[algorithm])
    # The library's own limit is below the signature size of the longest accepted keys.
    registry.max_signature_length = TOKEN_CHARS_MAX
    return registry
