"""Lines of a stream, wherever it is cut into blocks."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.imports import readers as lines_module
from analytics.imports.readers import Lines, LineTooLong


@given(st.binary().map(lambda text: text.replace(b"\xef\xbb\xbf", b"")), st.integers(1, 5))
def test_lines_are_those_of_the_whole(content, block):
    whole = content.split(b"\n")
    is_torn = bool(whole[-1])
    lines = Lines(_Slow(content, block))

    assert list(lines) == (whole if is_torn else whole[:-1])
    assert (lines.number, lines.is_torn) == (len(whole) - (not is_torn), is_torn)


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    """Spreadsheets write one; elsewhere it is a character like any other."""
    mark = b"\xef\xbb\xbf"

    assert list(Lines(io.BytesIO(mark + b"a\n" + mark + b"b\n"))) == [b"a", mark + b"b"]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_has_a_longest_length(end, monkeypatch):
    """A file without line feeds is refused before it fills the memory."""
    monkeypatch.setattr(lines_module, "_BLOCK_BYTES", 4)
    assert list(Lines(io.BytesIO(b"x" * 10 + end), bytes_max=10)) == [b"x" * 10]

    lines = Lines(io.BytesIO(b"ok\n" + b"x" * 14 + end), bytes_max=10)
    with pytest.raises(LineTooLong, match="10 bytes"):
        list(lines)
    assert lines.number == 1


class _Slow:
    def __init__(self, content: bytes, block: int) -> None:
        self._stream, self._block = io.BytesIO(content), block

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, self._block))
