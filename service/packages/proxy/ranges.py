"""Parses which bytes of a file a request asks for (RFC 9110, 14)."""

import re
from dataclasses import dataclass
from typing import Final

_RANGE: Final = re.compile(
    r"bytes[ \t]*=[ \t]*(\d{0,20})-(\d{0,20})[ \t]*", re.IGNORECASE | re.ASCII
)


class RangeUnsatisfiable(Exception):
    """The range has no byte of the file: 416 with `content-range: bytes */<size>`."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes from `start` up to, not including, `stop`; at least one."""

    start: int
    stop: int

    def content_range(self, size: int) -> str:
        """The `content-range` of a 206 with these bytes of a file of `size` bytes."""
        return f"bytes {self.start}-{self.stop - 1}/{size}"


def wants_range(range_field: str | None, if_range: str | None, etag: str) -> bool:
    """Whether the request may be for a part, so that the file's size must be known.

    With `If-Range`, only if that is the file's own strong etag. For another etag or a date the
    answer is the whole file (RFC 9110, 13.1.5).
    """
    if range_field is None or not _RANGE.fullmatch(range_field):
        return False
    return if_range is None or if_range.strip() == etag


def is_later_part(range_field: str | None, if_range: str | None, etag: str) -> bool:
    """True if the answer cannot include the file's first byte.

    A range of the last bytes may be all of them, so it is not a later part.
    """
    if range_field is None or not wants_range(range_field, if_range, etag):
        return False
    match = _RANGE.fullmatch(range_field)
    first, last = match.groups() if match else ("", "")
    return first != "" and int(first) > 0 and (last == "" or int(first) <= int(last))


def parse_range(range_field: str, size: int) -> ByteRange | None:
    """The requested part of a file of `size` bytes, None for all of it. Raises RangeUnsatisfiable.

    Several ranges, other units and invalid ranges are ignored, as RFC 9110, 14.2 allows.
    """
    match = _RANGE.fullmatch(range_field)
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:  # the last bytes
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= min(stop, size):
        raise RangeUnsatisfiable
    return ByteRange(start, stop)
