"""Types of parameters and members that the OpenAPI document describes."""

from typing import Annotated, Final, TypeAlias, TypeVar

from msgspec import Meta, UnsetType

# The dates of the Gregorian calendar, leap years included.
DATE_PATTERN: Final = (
    r"(?!0000)([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    r"|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
)

# With an offset, the first and the last day are excluded: in UTC they may be outside all years.
INSTANT_PATTERN: Final = (
    rf"(?!(0001-01-01|9999-12-31).[0-9:.]+[+\- ]){DATE_PATTERN}"
    r"[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
    r"([Zz]|[+\- ]([01][0-9]|2[0-3]):[0-5][0-9])?"
)

INSTANT_OR_DATE_PATTERN: Final = f"^({DATE_PATTERN}|{INSTANT_PATTERN})$"
_Value = TypeVar("_Value")
Omittable: TypeAlias = _Value | UnsetType
"""The type of a parameter or member that may be missing; its default is UNSET."""

InstantOrDate = Annotated[
    str,
    Meta(examples=["2026-01-31T08:00:00Z"], extra_json_schema={"pattern": INSTANT_OR_DATE_PATTERN}),
]
"""An instant or a date in a request. The endpoint parses it: its errors say more than a pattern."""

TimestampMs = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
        examples=["2026-01-31T08:00:00.000Z"],
        extra_json_schema={"format": "date-time"},
    ),
]
"""An instant in an answer, with milliseconds."""

TimestampUs = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$",
        examples=["2026-01-31T08:00:00.000000Z"],
        extra_json_schema={"format": "date-time"},
    ),
]
"""An instant in an answer, with microseconds."""

NonNegative = Annotated[int, Meta(ge=0)]

PageCursor = Annotated[str, Meta(description="`next_cursor` of the page before.")]
