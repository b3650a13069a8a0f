"""Refusals of what no endpoint accepts: a malformed body, parameter or header."""

from typing import Final

from service.core.errors import (
    BodyTooLarge,
    Invalid,
    Refusal,
    UnsupportedMediaType,
)

NOT_AN_OBJECT: Final = Invalid.of("request body must be a JSON object")
DUPLICATE_MEMBER: Final = Invalid.of("request body has a member twice: {value}", value="name")
NOT_A_NUMBER: Final = Invalid.of(
    "request body has {value}, which is not a JSON number", value="NaN"
)
NO_BODY_EXPECTED: Final = Invalid.of("this request takes no body: leave it empty")
NOT_GZIP: Final = Invalid.of("request body is not valid gzip")
INVALID_CURSOR: Final = Invalid.of("cursor is not valid for this query", field="cursor")
UNKNOWN_FIELD: Final = Invalid.of("unknown field: {value}", value="colour")
UNKNOWN_PARAMETER: Final = Invalid.of("unknown query parameter: {value}", value="colour")
IDEMPOTENCY_KEY_INVALID: Final = Invalid.of(
    "Idempotency-Key must be 1..255 printable ASCII characters"
)
UNKNOWN_ENCODING: Final = UnsupportedMediaType.of("content-encoding must be gzip or identity")
WRONG_MEDIA_TYPE: Final = UnsupportedMediaType.of(
    "content-type must be {value}", value="application/zip"
)

BODY_REFUSALS: Final[tuple[type[Refusal], ...]] = (
    DUPLICATE_MEMBER,
    NOT_A_NUMBER,
    NOT_GZIP,
    BodyTooLarge,
    UnsupportedMediaType,
    UNKNOWN_ENCODING,
)
"""What reading a JSON body refuses, besides NOT_AN_OBJECT."""
