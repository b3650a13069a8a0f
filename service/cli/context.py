"""What commands share: their services, output and failures."""

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, Final, NoReturn, ParamSpec

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from analytics.model.errors import StoreFault
from analytics.model.filters import InvalidQuery
from analytics.model.rows import AuditContext
from service.access.callers import Operator, cli_caller
from service.audit.lease import LeaseTaken
from service.audit.unnamed_files import ImportOvertaken
from service.backup.refusals import BackupOvertaken
from service.bootstrap import check_writable
from service.clock import utc_now
from service.composition import Services, build_services
from service.errors import Invalid, Refusal, StoreUnavailable
from service.logs import configure_logs
from service.orgs.repository import get_org
from service.secrets import with_secrets
from service.settings import InvalidSetting, Settings, load_settings
from service.store.migrate import check_schema
from service.store.store import UnitOfWork
from service.store.tables import Organisation

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 1
EXIT_FOUND: Final = 1
"""A check that ran and has findings."""
EXIT_UNAVAILABLE: Final = 3
EXIT_INCOMPLETE: Final = 4
"""Done, except for what is missing or damaged."""
_PIPE_WIDTH: Final = 10_000

_Parameters = ParamSpec("_Parameters")


class NotInitialised(Refusal):
    """There is no data dir to work on."""

    status = 503
    text = "no data in {value}: run `countersign init` first, or set COUNTERSIGN_DATA_DIR"


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
    code: int = EXIT_DONE

    def show(self, *, as_json: bool) -> None:
        """Write it to standard output, or to standard error if `is_on_stderr`."""
        if as_json:
            click.echo(json.dumps(self.data, indent=2, default=str), err=self.is_on_stderr)
            return
        if self.table is not None:
            # In a pipe every row must stay on one line.
            Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(self.table)
        for line in self.lines:
            click.echo(line, err=self.is_on_stderr)

    def end(self, *, as_json: bool) -> None:
        """Write it; end the process with `code` unless that is 0."""
        self.show(as_json=as_json)
        if self.code:
            sys.exit(self.code)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A command's services, and the operator as audit rows name them."""

    services: Services
    operator: Operator

    @property
    def audit_context(self) -> AuditContext:
        """The operator and the origin in audit rows of the command's changes."""
        return self.operator.audit_context

    @asynccontextmanager
    async def change(self, slug: str) -> AsyncIterator[tuple[UnitOfWork, Organisation]]:
        """One transaction on one organisation. Raises OrgNotFound."""
        async with self.services.store.write() as work:
            yield work, await get_org(work.session, slug)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table for people; None is shown as a dash."""
    grid = Table(title=f"{escape(title)} ({len(rows)})", title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*("–" if cell is None else escape(str(cell)) for cell in row))
    return grid


def command(
    group: click.Group, name: str
) -> Callable[
    [Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]]],
    Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]],
]:
    """Register an async function of a CommandContext, which returns an Answer, in `group`."""

    def register(
        function: Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]],
    ) -> Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]]:
        @functools.wraps(function)
        def run(*, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - click's own values
            run_command(function, options, as_json=as_json)

        with_json = click.option(
            "--json", "as_json", is_flag=True, help="Answer in JSON, for scripts."
        )
        group.command(name)(with_json(run))
        return function

    return register


def run_command(
    function: Callable[..., Awaitable[Answer]], options: dict[str, Any], *, as_json: bool
) -> None:
    """Run `function` on the configured data dir and show its answer."""
    with one_line_failures(as_json=as_json):
        refuse_unencodable_text(options)
        settings = load_settings()
        configure_logs("warning")
        answer = asyncio.run(_run_in_context(settings, function, options))
        answer.end(as_json=as_json)


def refuse_unencodable_text(options: dict[str, Any]) -> None:
    """Raise Invalid for arguments that are not UTF-8, which arrive as lone surrogates.

    They can be neither stored nor searched for.
    """
    for value in options.values():
        for text in value if isinstance(value, tuple) else (value,):
            try:
                str(text).encode()
            except UnicodeEncodeError as error:
                raise Invalid("arguments must be text in UTF-8") from error


async def _run_in_context(
    settings: Settings, function: Callable[..., Awaitable[Answer]], options: dict[str, Any]
) -> Answer:
    if not settings.audit_dir.is_dir():
        raise NotInitialised(value=str(settings.data_dir))
    check_writable(settings.data_dir)
    services = build_services(with_secrets(settings), utc_now)
    try:
        await check_schema(services.store)
        return await function(
            CommandContext(services, cli_caller(settings.platform_tenant_id)), **options
        )
    finally:
        await services.close()


@contextmanager
def one_line_failures(*, as_json: bool) -> Iterator[None]:
    """End the process with one line if the block raises an expected failure."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has gone; click exits quietly
    except (Refusal, InvalidSetting, InvalidQuery, StoreFault, OSError) as error:
        _fail(error, as_json=as_json)


def _fail(error: Exception, *, as_json: bool) -> NoReturn:
    """Write one line to standard error; the exit code tells the kind of failure."""
    line = one_line(error)
    click.echo(json.dumps({"error": line}) if as_json else f"countersign: {line}", err=True)
    sys.exit(exit_code(error))


def one_line(error: Exception) -> str:
    """The text of `error` for the operator, on one line."""
    text = f"{error} ({error.reason})" if isinstance(error, StoreUnavailable) else str(error)
    return " ".join(text.split())


def exit_code(error: Exception) -> int:
    """The exit code for `error`: it tells whether trying again may help."""
    is_temporary = isinstance(
        error, StoreUnavailable | StoreFault | LeaseTaken | ImportOvertaken | BackupOvertaken
    )
    return EXIT_UNAVAILABLE if is_temporary else EXIT_REFUSED


org_option = click.option("--org", "slug", required=True, metavar="SLUG", help="The organisation.")
