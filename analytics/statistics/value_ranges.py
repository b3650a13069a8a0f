"""A condition as ranges of values in byte order, which an index of sorted values can count."""

from analytics.model.filters import Condition, Term

Range = tuple[bytes, bytes]
"""All values from the first, inclusive, to the second, exclusive, in the order of their UTF-8."""

_BEYOND_ALL = b"\xff"
"""No UTF-8 begins with this byte."""


def value_ranges(condition: Condition) -> list[Range]:
    """The values that meet `condition`, as disjoint ranges in order.

    Null is in none of them. A condition without positive terms begins with all values.
    """
    wanted = _union([_range(term) for term in condition.wanted]) or [(b"", _BEYOND_ALL)]
    for term in condition.unwanted:
        wanted = _without(wanted, _range(term))
    return wanted


def _range(term: Term) -> Range:
    low = term.text.encode(errors="surrogatepass")
    if not term.is_prefix:
        return low, low + b"\0"  # nothing lies between a value and itself with a zero byte behind
    return low, low[:-1] + bytes([low[-1] + 1]) if low else _BEYOND_ALL


def _union(ranges: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _without(ranges: list[Range], removed: Range) -> list[Range]:
    low, high = removed
    parts = [
        part for start, end in ranges for part in ((start, min(end, low)), (max(start, high), end))
    ]
    return [(start, end) for start, end in parts if start < end]
