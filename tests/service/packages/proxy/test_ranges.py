"""Parts of a file as RFC 9110 defines them; installers read the end of a wheel first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.packages.proxy.file_answer import (
    ByteRange,
    RangeUnsatisfiable,
    parse_range,
    wants_range,
)

ETAG = '"sha256-00"'


@pytest.mark.parametrize(
    ("field", "part"),
    [
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=0-99", ByteRange(0, 100)),
        ("bytes=0-1000", ByteRange(0, 100)),
        ("bytes=90-", ByteRange(90, 100)),
        ("bytes=-10", ByteRange(90, 100)),
        ("bytes=-1000", ByteRange(0, 100)),
        ("Bytes = 1-2 ", ByteRange(1, 3)),
        ("bytes=-99999999999999999999", ByteRange(0, 100)),
    ],
)
def test_one_range_is_one_part(field: str, part: ByteRange) -> None:
    assert parse_range(field, 100) == part


@pytest.mark.parametrize(
    "field",
    ["bytes=0-1,5-6", "bytes=5-4", "bytes=-", "bytes", "", "items=0-1", "bytes=a-b", "bytes=+1-2",
     "bytes=1-2-3", "bytes=٠-١", "bytes=0x1-2", "bytes=1" + "0" * 30 + "-"],
)  # fmt: skip
def test_what_is_not_one_range_is_ignored(field: str) -> None:
    """The whole file is always a right answer (RFC 9110, 14.2)."""
    assert parse_range(field, 100) is None


@pytest.mark.parametrize(
    ("field", "size"),
    [
        ("bytes=100-", 100),
        ("bytes=100-200", 100),
        ("bytes=-0", 100),
        ("bytes=0-", 0),
        ("bytes=-5", 0),
    ],
)
def test_a_range_without_a_byte_is_unsatisfiable(field: str, size: int) -> None:
    with pytest.raises(RangeUnsatisfiable):
        parse_range(field, size)


@given(first=st.integers(0, 120), last=st.integers(0, 120), size=st.integers(1, 100))
def test_a_part_is_what_its_range_says(first: int, last: int, size: int) -> None:
    content = bytes(range(size))
    try:
        part = parse_range(f"bytes={first}-{last}", size)
    except RangeUnsatisfiable:
        assert first >= size
        return
    if part is None:
        assert last < first
        return
    assert content[part.start : part.stop] == content[first : last + 1] != b""
    assert part.content_range(size) == f"bytes {first}-{min(last, size - 1)}/{size}"


@pytest.mark.parametrize(
    ("field", "if_range", "is_wanted"),
    [
        ("bytes=0-1", None, True),
        ("bytes=0-1", ETAG, True),
        ("bytes=0-1", '"sha256-11"', False),
        ("bytes=0-1", f"W/{ETAG}", False),
        ("bytes=0-1", "Mon, 01 Jan 2024 00:00:00 GMT", False),
        ("bytes=0-1,3-4", None, False),
        (None, None, False),
        (None, ETAG, False),
    ],
)
def test_a_part_of_another_version_is_not_wanted(
    field: str | None, if_range: str | None, is_wanted: bool
) -> None:
    """Parts of two versions must not be put together (RFC 9110, 13.1.5)."""
    assert wants_range(field, if_range, ETAG) is is_wanted
