"""Strict parsing of tokens, before any of their contents are trusted.

Refuses everything that two parsers could read differently (RFC 8725, 3.11 and 3.12), so that each
token has exactly one header and one set of claims.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, Final

from analytics.model.strict_json import NotStrictJson, strict_object
from service.ci.verifier.claims import UnverifiedClaims, UnverifiedToken
from service.ci.verifier.codes import FailureCode, TokenRejected

TOKEN_CHARS_MAX: Final = 16 * 1024
_OPTIONAL_WHITESPACE: Final = " \t"
# The third part may be empty: an unsigned token is well-formed, and rule 6 rejects it.
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)


def read_header(values: Sequence[str]) -> str:
    """The token in the request header's `values`. Raises TokenRejected.

    White space around a header value is not part of it (RFC 9110, 5.5). A repeated header is
    ambiguous and rejected.
    """
    if len(values) != 1:
        raise _malformed("the header was sent more than once")
    token = values[0].strip(_OPTIONAL_WHITESPACE)
    if not token:
        raise TokenRejected(FailureCode.MISSING_TOKEN)
    return token


def parse_token(compact: str) -> UnverifiedToken:
    """The parts of a JWS in compact serialisation (RFC 7515, 3.1). Raises TokenRejected.

    The size is checked before anything is decoded.
    """
    if len(compact) > TOKEN_CHARS_MAX:
        raise _malformed(f"longer than {TOKEN_CHARS_MAX} characters")
    if not _COMPACT.fullmatch(compact):
        raise _malformed("not three base64url parts with dots between them")
    header, payload, signature = compact.split(".")
    # For its checks alone: a token must not have a second spelling in its signature either.
    _decode(signature)
    return UnverifiedToken(compact, _json_object(header), UnverifiedClaims(_json_object(payload)))


def _decode(part: str) -> bytes:
    """`part` decoded from base64url; only the canonical encoding is accepted."""
    try:
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError) as error:
        raise _malformed("a part is not base64url") from error
    # RFC 4648, 3.5: non-zero padding bits would give one token several encodings.
    if len(part) % 4 and base64.urlsafe_b64encode(raw).rstrip(b"=") != part.encode():
        raise _malformed("a part has stray bits at its end")
    return raw


def _json_object(part: str) -> dict[str, Any]:
    try:
        return strict_object(_decode(part))
    except NotStrictJson as error:
        raise _malformed(f"a part: {error}") from error


def _malformed(reason: str) -> TokenRejected:
    return TokenRejected(FailureCode.MALFORMED_JWT, reason=reason)
