"""What a command says in the end: its answer, or the one line of a failure."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from service.cli.proposals import printable
from service.cli.tables import Table
from service.cli.terminal import has_colour, terminal_width
from service.core.errors import Invalid, Refusal, StoreUnavailable
from service.core.exit_codes import ExitCode, exit_code
from service.core.settings import InvalidSetting


@dataclass(frozen=True, slots=True)
class Output:
    """How a command writes: JSON for scripts, and instants in UTC."""

    as_json: bool
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
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
            width = terminal_width()
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
    if isinstance(error, Refusal | InvalidSetting | OSError):
        return True
    from analytics.model.errors import StoreFault
    from analytics.model.filters import InvalidQuery

    return isinstance(error, StoreFault | InvalidQuery)


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
