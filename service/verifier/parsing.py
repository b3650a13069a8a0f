"""Reading a token strictly, before anything in it is believed.

Everything that two readers could understand in two ways is refused here (RFC 8725, 3.11 and 3.12):
what is left is one header and one set of claims, whoever reads them.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from service.verifier.claims import UnverifiedClaims, UnverifiedToken
from service.verifier.codes import FailureCode, TokenRejected

TOKEN_CHARS_MAX: Final = 16 * 1024
NESTING_MAX: Final = 8
INTEGER_DIGITS_MAX: Final = 32
_OPTIONAL_WHITESPACE: Final = " \t"
# The third part may be empty: a token without a signature is a token, and rule 6 rejects it.
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def read_header(values: Sequence[str]) -> str:
    """The one token that the request's header `values` carry. Raises TokenRejected.

    White space around a header's value is none of it (RFC 9110, 5.5). Sent twice, which of the two
    would be meant?
    """
    if len(values) != 1:
        raise _malformed("the header was sent more than once")
    token = values[0].strip(_OPTIONAL_WHITESPACE)
    if not token:
        raise TokenRejected(FailureCode.MISSING_TOKEN)
    return token


def parse_token(compact: str) -> UnverifiedToken:
    """The parts of a JWS in compact serialisation (RFC 7515, 3.1). Raises TokenRejected.

    Its size is looked at before anything is decoded.
    """
    if len(compact) > TOKEN_CHARS_MAX:
        raise _malformed(f"longer than {TOKEN_CHARS_MAX} characters")
    if not _COMPACT.fullmatch(compact):
        raise _malformed("not three base64url parts with dots between them")
    header, payload, signature = compact.split(".")
    _decode(signature)
    return UnverifiedToken(compact, _json_object(header), UnverifiedClaims(_json_object(payload)))


def _decode(part: str) -> bytes:
    """`part` without its base64url coding, in its one spelling: no stray bits at the end."""
    try:
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError) as error:
        raise _malformed("a part is not base64url") from error
    # RFC 4648, 3.5: bits that mean nothing would give one token many spellings.
    if len(part) % 4 and base64.urlsafe_b64encode(raw).rstrip(b"=") != part.encode():
        raise _malformed("a part has stray bits at its end")
    return raw


def _json_object(part: str) -> dict[str, Any]:
    raw = _decode(part)
    try:
        value = json.loads(
            raw.decode(),  # a byte order mark stays, and is no JSON
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise _malformed("a part is not strict JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise _malformed("a part is not a JSON object")
    if _SURROGATE.search(raw):
        _refuse_lone_surrogates(value)
    _refuse_deep_nesting(value)
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is named twice")
    return members


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise ValueError("an integer is too long")
    return int(digits)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise _malformed("a string has half of a surrogate pair") from error


def _refuse_deep_nesting(value: dict[str, Any]) -> None:
    level: list[dict[str, Any] | list[Any]] = [value]
    for _ in range(NESTING_MAX):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _malformed(f"nested deeper than {NESTING_MAX} levels")


def _malformed(reason: str) -> TokenRejected:
    return TokenRejected(FailureCode.MALFORMED_JWT, reason=reason)
