"""Tables for people: fitted to a terminal without cutting values; one row per line in a pipe."""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from service.cli.proposals import printable
from service.cli.times import relative_time

NONE: Final = "–"
_GAP: Final = "  "
_INDENT: Final = "    "

Cells = list[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A titled grid. None is shown as a dash.

    Columns in `times` hold instants in the API's format. `total` is one more row below the others,
    which is not counted.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    times: Collection[str] = ()
    total: Sequence[object] | None = None

    @classmethod
    def of(
        cls,
        title: str,
        rows: Iterable[Mapping[str, object]],
        columns: Sequence[str] | Mapping[str, str],
        times: Collection[str] = (),
    ) -> Self:
        """A table of some members of `rows`: their names, or the members by heading."""
        names = columns.values() if isinstance(columns, Mapping) else columns
        return cls(title, list(columns), [[row[name] for name in names] for row in rows], times)

    def lines(self, width: int | None = None, now: datetime | None = None) -> Iterator[str]:
        """The lines to print: title, heads, rows.

        Without `width` each row is one line of any length. With it, the columns that do not fit
        follow on lines below, each with its name; no value is cut. With `now`, instants are shown
        relative to it.
        """
        cells = [self._cells(row, now) for row in self.rows]
        below = [] if self.total is None else [self._cells(self.total, now)]
        yield f"{printable(self.title)} ({len(cells)})"
        if not cells and not below:
            return
        widths = [
            max(map(text_width, column))
            for column in zip(self.columns, *cells, *below, strict=True)
        ]
        fitting = _fitting(widths, width)
        yield ""
        yield _line(self.columns[:fitting], widths)
        for number, row in enumerate([*cells, *below]):
            if number == len(cells):
                yield ""
            yield _line(row[:fitting], widths)
            rest = [
                f"{name} {cell}"
                for name, cell in zip(self.columns[fitting:], row[fitting:], strict=True)
                if cell != NONE
            ]
            yield from _packed(rest, width or 0)

    def _cells(self, row: Sequence[object], now: datetime | None) -> Cells:
        return [
            printable(
                relative_time(str(cell), now)
                if name in self.times and now is not None and cell is not None
                else cell
            )
            for name, cell in zip(self.columns, row, strict=True)
        ]


def text_width(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def padded(text: str, width: int) -> str:
    """`text`, followed by blanks up to `width` columns."""
    return text + " " * (width - text_width(text))


def _fitting(widths: Sequence[int], width: int | None) -> int:
    """How many columns fit beside each other; at least one."""
    if width is None:
        return len(widths)
    used = -len(_GAP)
    for number, column in enumerate(widths):
        used += len(_GAP) + column
        if used > width:
            return max(1, number)
    return len(widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(
        padded(cell, width) for cell, width in zip(cells, widths, strict=False)
    ).rstrip()


def _packed(parts: Sequence[str], width: int) -> Iterator[str]:
    """`parts` on as few indented lines as possible; one that is too long has lines of its own."""
    line = ""
    for part in parts:
        if line and len(_INDENT) + text_width(line + _GAP + part) > width:
            yield _INDENT + line
            line = ""
        line = f"{line}{_GAP}{part}" if line else part
    if line:
        yield _INDENT + line
