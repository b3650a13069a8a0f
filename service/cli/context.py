"""What commands share: their services, output and failures.

Importing it imports neither the services nor their dependencies, which completion and commands on a
server do not need.
"""

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec

import click

from service.cli.nearest import did_you_mean
from service.cli.proposals import printable
from service.cli.tables import Table
from service.cli.terminal import has_colour, terminal_width
from service.errors import Invalid, OrgNotFound, Refusal, StoreUnavailable
from service.settings import InvalidSetting, Settings, load_settings

if TYPE_CHECKING:
    from analytics.model.rows import AuditContext
    from service.access.callers import Operator
    from service.composition import Services
    from service.store.store import UnitOfWork
    from service.store.tables import Organisation

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 1
EXIT_FOUND: Final = 1
"""A check that ran and has findings."""
EXIT_UNAVAILABLE: Final = 3
EXIT_INCOMPLETE: Final = 4
"""Done, except for what is missing or damaged."""
EXIT_CHANGES: Final = 5
"""Nothing was done, and there is something to do (`--plan`)."""
EXIT_INTERRUPTED: Final = 130
"""Ended by Ctrl-C, as shells report it."""

_SEGMENT_GROUPS: Final = frozenset({"audit", "lake"})
_WITHOUT_PREFIX: Final = frozenset({"take-over"})
"""Commands of these groups that make the prefix ours."""

_Parameters = ParamSpec("_Parameters")


class NotInitialised(Refusal):
    """There is no data dir to work on."""

    status = 503
    text = (
        "no data in {value}: run `countersign init` first, or set COUNTERSIGN_DATA_DIR; to use a"
        " server, run `countersign login URL`"
    )


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

    def show(self, *, as_json: bool, is_exact: bool = True) -> None:
        """Write it to standard output, or to standard error if `is_on_stderr`.

        On a terminal instants are shown relative to now, unless `is_exact`.
        """
        if as_json:
            click.echo(json.dumps(self.data, indent=2, default=str), err=self.is_on_stderr)
            return
        if self.table is not None:
            width = terminal_width()
            now = None if width is None or is_exact else datetime.now(UTC)
            for number, line in enumerate(self.table.lines(width, now)):
                is_title = number == 0 and has_colour()
                click.echo(click.style(line, bold=True) if is_title else line)
        for line in self.lines:
            # A line may quote a log or a server: no character of it may control the terminal.
            click.echo(printable(line), err=self.is_on_stderr)

    def end(self, *, as_json: bool, is_exact: bool = True) -> None:
        """Write it; end the process with `code` unless that is 0."""
        self.show(as_json=as_json, is_exact=is_exact)
        if self.code:
            sys.exit(self.code)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A command's services, and the operator as audit rows name them."""

    services: "Services"
    operator: "Operator"

    @property
    def audit_context(self) -> "AuditContext":
        """The operator and the origin in audit rows of the command's changes."""
        return self.operator.audit_context

    @asynccontextmanager
    async def change(self, slug: str) -> AsyncIterator[tuple["UnitOfWork", "Organisation"]]:
        """One transaction on one organisation. Raises OrgNotFound."""
        from service.orgs.repository import get_org

        async with self.services.store.write() as work:
            yield work, await get_org(work.session, slug)

    @asynccontextmanager
    async def nearest_org(self, slug: str | None) -> AsyncIterator[None]:
        """Name the organisation that is most like `slug` if the block raises OrgNotFound."""
        from service.orgs.repository import list_orgs

        try:
            yield
        except OrgNotFound as error:
            async with self.services.store.read() as session:
                known = [org.slug for org in await list_orgs(session)]
            raise OrgNotFound(did_you_mean(error.text, slug or "", known)) from error


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
        def run(*, as_json: bool, is_exact: bool, **options: Any) -> None:  # noqa: ANN401 - click's own values
            run_command(
                function,
                options,
                as_json=as_json,
                is_exact=is_exact,
                uses_segments=group.name in _SEGMENT_GROUPS and name not in _WITHOUT_PREFIX,
            )

        group.command(name)(output_options(run))
        return function

    return register


def output_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how its answer is written."""
    function = click.option(
        "--utc", "is_exact", is_flag=True, help="Show instants in UTC, not as `3 h ago`."
    )(function)
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for scripts.")(
        function
    )


def run_command(
    function: Callable[..., Awaitable[Answer]],
    options: dict[str, Any],
    *,
    as_json: bool,
    is_exact: bool = True,
    uses_segments: bool = False,
) -> None:
    """Run `function` on the configured data dir and show its answer.

    One that uses segments does not run if the bucket's prefix is another installation's.
    """
    with one_line_failures(as_json=as_json):
        refuse_unencodable_text(options)

        async def run(context: CommandContext) -> Answer:
            if uses_segments:
                await _confirm_prefix(context.services)
            async with context.nearest_org(options.get("slug")):
                return await function(context, **options)

        answer = asyncio.run(within_data_dir(load_settings(), run))
        answer.end(as_json=as_json, is_exact=is_exact)


async def _confirm_prefix(services: "Services") -> None:
    from analytics.model.errors import StoreUnreachable
    from service.installation import prefix_refusals

    # Without an answer of the bucket the command may still read what is cached, or in the journal.
    with suppress(StoreUnreachable), prefix_refusals():
        await services.lake.confirm_prefix()


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


async def within_data_dir(
    settings: Settings, work: Callable[[CommandContext], Coroutine[Any, Any, Answer]]
) -> Answer:
    """The answer of `work` with the services over the data dir of `settings`.

    Raises NotInitialised, Conflict for a database of another version.
    """
    from service.access.callers import cli_caller
    from service.bootstrap import check_writable
    from service.clock import utc_now
    from service.composition import build_services
    from service.logs import configure_logs
    from service.secrets import with_secrets
    from service.store.migrate import check_schema

    configure_logs("warning")
    if not settings.audit_dir.is_dir():
        raise NotInitialised(value=str(settings.data_dir))
    check_writable(settings.data_dir)
    services = build_services(with_secrets(settings), utc_now)
    try:
        await check_schema(services.store)
        return await work(CommandContext(services, cli_caller(settings.platform_tenant_id)))
    finally:
        await services.close()


@contextmanager
def one_line_failures(*, as_json: bool) -> Iterator[None]:
    """End the process with one line if the block raises an expected failure."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has gone; click exits quietly
    except Exception as error:
        if not _is_expected(error):
            raise
        _fail(error, as_json=as_json)


def _is_expected(error: Exception) -> bool:
    if isinstance(error, Refusal | InvalidSetting | OSError):
        return True
    from analytics.model.errors import StoreFault
    from analytics.model.filters import InvalidQuery

    return isinstance(error, StoreFault | InvalidQuery)


def _fail(error: Exception, *, as_json: bool) -> NoReturn:
    """Write one line to standard error; the exit code tells the kind of failure."""
    line = one_line(error)
    click.echo(json.dumps({"error": line}) if as_json else f"countersign: {line}", err=True)
    sys.exit(exit_code(error))


def one_line(error: Exception) -> str:
    """The text of `error` for the operator, on one line, without control characters."""
    text = f"{error} ({error.reason})" if isinstance(error, StoreUnavailable) else str(error)
    return printable(" ".join(text.split()))


def exit_code(error: Exception) -> int:
    """The exit code for `error`: it tells whether trying again may help."""
    if isinstance(error, Refusal):
        return EXIT_UNAVAILABLE if error.is_temporary else EXIT_REFUSED
    from analytics.model.errors import StoreFault

    return EXIT_UNAVAILABLE if isinstance(error, StoreFault) else EXIT_REFUSED


org_option = click.option(
    "--org",
    "slug",
    required=True,
    metavar="SLUG",
    envvar="COUNTERSIGN_ORG",
    help="The organisation; default: COUNTERSIGN_ORG.",
)
