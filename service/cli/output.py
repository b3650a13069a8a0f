"""What a command writes: its answer, tables for people, or the one line of a failure."""

import json
import os
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, Self

import click

from service.cli.times import relative_time
from service.core.errors import Invalid, Refusal, StoreUnavailable
from service.core.exit_codes import ExitCode, exit_code, is_of_loaded
from service.core.settings import InvalidSetting


@dataclass(frozen=True, slots=True)
class Output:
    """How a command writes: JSON for scripts, and instants in UTC."""

    as_json: bool
    is_exact: bool = True


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


def is_terminal() -> bool:
    """True if standard output is a terminal, so that a person reads it."""
    return sys.stdout.isatty()


def has_colour() -> bool:
    """True if output may be coloured: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like `name`, or None if none is; case does not count."""
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def did_you_mean(text: str, name: str, known: Iterable[str]) -> str:
    """`text`, with the known name that is most like `name` if there is one."""
    close = nearest(name, known)
    return text if close is None else f"{text}: did you mean {close}?"


def printable(value: object) -> str:
    """`value` with characters escaped that a terminal would not print but interpret."""
    if value is None:
        return NONE
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(printable, value))
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))


def more_lines(page: Mapping[str, Any]) -> list[str]:
    """How to get the page after `page` of a list, which the API answered; empty for the last."""
    cursor = page["next_cursor"]
    return [f"More: --cursor {shlex.quote(cursor)}"] if cursor else []


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's output: `data` for scripts (--json), `table` and `lines` for people.

    `is_on_stderr` is for commands that write a file to standard output. `code` is the exit code of
    commands that can be done in part, or have findings.
    """

    data: Any
    lines: Sequence[str] = ()
    table: Table | None = None
    is_on_stderr: bool = False
    code: ExitCode = ExitCode.DONE

    def show(self, output: Output) -> None:
        """Write it to standard output, or to standard error if `is_on_stderr`.

        On a terminal instants are shown relative to now, unless they are to be exact.
        """
        if output.as_json:
            click.echo(json.dumps(self.data, indent=2, default=str), err=self.is_on_stderr)
            return
        if self.table is not None:
            width = shutil.get_terminal_size().columns if is_terminal() else None
            now = None if width is None or output.is_exact else datetime.now(UTC)
            for number, line in enumerate(self.table.lines(width, now)):
                is_title = number == 0 and has_colour()
                click.echo(click.style(line, bold=True) if is_title else line)
        for line in self.lines:
            # A line may quote a log or a server: no character of it may control the terminal.
            click.echo(printable(line), err=self.is_on_stderr)


@contextmanager
def one_line_failures(output: Output) -> Iterator[None]:
    """End the process with one line if the block raises an expected failure.

    The exit code tells the kind of failure.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has gone: the process ends quietly
    except Exception as error:
        if not _is_expected(error):
            raise
        line = one_line(error)
        said = json.dumps({"error": line}) if output.as_json else f"countersign: {line}"
        click.echo(said, err=True)
        sys.exit(exit_code(error))


def _is_expected(error: Exception) -> bool:
    return (
        isinstance(error, Refusal | InvalidSetting | OSError)
        or is_of_loaded(error, "analytics.model.errors", "StoreFault")
        or is_of_loaded(error, "analytics.model.filters", "InvalidQuery")
    )


def one_line(error: Exception) -> str:
    """The text of `error` for the operator, on one line, without control characters."""
    text = f"{error} ({error.reason})" if isinstance(error, StoreUnavailable) else str(error)
    return printable(" ".join(text.split()))


def refuse_unencodable_text(options: Mapping[str, Any]) -> None:
    """Raise Invalid for arguments that are not UTF-8, which arrive as lone surrogates.

    They can be neither stored nor searched for.
    """
    for value in options.values():
        for text in value if isinstance(value, tuple) else (value,):
            try:
                str(text).encode()
            except UnicodeEncodeError as error:
                raise Invalid("arguments must be text in UTF-8") from error
