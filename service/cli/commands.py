"""How a command is declared: its groups, where it works, and whether it changes anything there.

`api_command` is for most: one request to the API, of a server or of the app over this machine's
data dir. `data_dir_command` is for what works on the files of a data dir. Each command ends in the
same way: with its answer, or with one line and the exit code of a failure.

Importing this imports neither the services nor their dependencies, which completion and commands on
a server do not need.
"""

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click

from service.cli.output import (
    CommandResult,
    Output,
    did_you_mean,
    one_line_failures,
    refuse_unencodable_text,
)
from service.cli.target import (
    ORG_VARIABLE,
    Remote,
    Target,
    choose_target,
    data_dir_target,
)
from service.core.errors import OrgNotFound, Refusal
from service.core.exit_codes import WrongUsage
from service.core.settings import Settings, load_settings

if TYPE_CHECKING:
    from analytics.model.rows import AuditContext
    from service.access.callers import Operator
    from service.app.composition import Services
    from service.cli.client import Client

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Parameters = ParamSpec("_Parameters")

_SEGMENT_GROUPS: Final = frozenset({"audit", "lake"})
_WITH_SEGMENTS: Final = frozenset({"backup"})
"""Other commands that use segments."""
_WITHOUT_PREFIX: Final = frozenset({"take-over"})
"""Commands of these groups that make the prefix ours."""


class CommandPlace(Enum):
    """Where a command works."""

    DATA_DIR = auto()
    """On the data dir of this machine: with a server set, only with --local."""
    EITHER = auto()
    """On the server that is set, otherwise on the data dir."""
    SERVER = auto()
    """On the server that its own arguments name."""
    LOCAL = auto()
    """On this machine, also with a server set: what serves a data dir, or reads files alone."""


NOT_INITIALISED: Final = Refusal.of(
    "no data in {value}: run `countersign init` first, or set COUNTERSIGN_DATA_DIR; to use a"
    " server, run `countersign login URL`",
    status=503,
)


CLIENT_ALONE: Final = Refusal.of(
    "this is the client alone, which has no data dir: run `countersign login URL`, or install the"
    " whole of countersign-service",
    status=503,
)
ORG_MISSING: Final = WrongUsage.of(f"name the organisation: --org SLUG, or {ORG_VARIABLE}")


_LOCAL: Final = click.Option(
    ["--local", "is_local"], is_flag=True, help="Work on this machine's data dir."
)
_PLACE_OPTIONS: Final = {
    CommandPlace.DATA_DIR: (_LOCAL,),
    CommandPlace.LOCAL: (_LOCAL,),
    CommandPlace.EITHER: (
        click.Option(
            ["--server"], metavar="URL", help="Work on this server; default: COUNTERSIGN_SERVER."
        ),
        _LOCAL,
        click.Option(
            ["--insecure", "is_insecure"], is_flag=True, help="Allow http:// to another machine."
        ),
    ),
}
_JSON: Final = click.Option(
    ["--json", "as_json"], is_flag=True, help="Answer in JSON, for scripts."
)
_UTC: Final = click.Option(
    ["--utc", "is_exact"], is_flag=True, help="Show instants in UTC, not as `3 h ago`."
)

org_option = click.option(
    "--org",
    "slug",
    required=True,
    metavar="SLUG",
    envvar=ORG_VARIABLE,
    help=f"The organisation; default: {ORG_VARIABLE}.",
)
org_or_login = click.option(
    "--org",
    "slug",
    metavar="SLUG",
    envvar=ORG_VARIABLE,
    help=f"The organisation; default: {ORG_VARIABLE}, or that of the login.",
)


CURSOR: Final = click.option("--cursor", help="The next_cursor of the page before.")


@dataclass(slots=True)
class CommandRun:
    """A command that runs: how it writes, and its target if it has one of the two kinds."""

    output: Output
    target: Target | None
    is_local: bool = False
    is_target_shown: bool = False

    def show_target(self) -> None:
        """Say on standard error, once, what the command works on."""
        if self.target is None or self.is_target_shown:
            return
        self.is_target_shown = True
        place, why = self.target.place, self.target.why
        said = json.dumps({"target": place, "why": why})
        click.echo(said if self.output.as_json else f"Target: {place} ({why}).", err=True)


class Command(click.Command):
    """A command that works at its `place`; `changes` tells whether it changes anything there.

    Its function gets the options that are its own, and may return a CommandResult.
    """

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - as declared by click
        place: CommandPlace,
        changes: bool,
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*arguments, **named)
        self.place, self.changes = place, changes
        self.params += [
            *_PLACE_OPTIONS.get(place, ()),
            _JSON,
            *([] if place is CommandPlace.LOCAL else [_UTC]),
        ]

    def invoke(self, ctx: click.Context) -> None:
        """Run it to its end; its exit code, unless 0, ends the process."""
        given = ctx.params
        output = Output(given.pop("as_json"), given.pop("is_exact", True))
        with one_line_failures(output):
            refuse_unencodable_text(given)
            run = ctx.obj = self._run(ctx, output)
            answer = super().invoke(ctx)
            if not isinstance(answer, CommandResult):
                return
            if self.changes:
                run.show_target()
            answer.show(output)
            if answer.code:
                sys.exit(answer.code)

    def _run(self, ctx: click.Context, output: Output) -> CommandRun:
        given = ctx.params
        run = CommandRun(output, None, is_local=given.pop("is_local", False))
        if self.place is CommandPlace.DATA_DIR:
            run.target = data_dir_target(_words(ctx), is_local=run.is_local)
        elif self.place is CommandPlace.EITHER:
            server, is_insecure = given.pop("server"), given.pop("is_insecure")
            run.target = choose_target(server, is_local=run.is_local, is_insecure=is_insecure)
        return run


def declare(
    group: click.Group,
    name: str,
    *,
    place: CommandPlace,
    changes: bool = False,
    **settings: Any,  # noqa: ANN401 - click's
) -> Callable[[_Function], _Function]:
    """Add a function with click's options to `group` as the command `name`.

    It stays a function, which can be declared in another group, too. `settings` are click's.
    """

    def register(function: _Function) -> _Function:
        @functools.wraps(function)
        def run(**options: Any) -> Any:  # noqa: ANN401 - click's own values
            return function(**options)

        run.__dict__["__click_params__"] = [*getattr(function, "__click_params__", ())]
        group.command(name, cls=Command, place=place, changes=changes, **settings)(run)
        return function

    return register


def current_run() -> CommandRun:
    """The command that runs."""
    run: CommandRun = click.get_current_context().obj
    return run


def _words(ctx: click.Context) -> str:
    """The command's name after those of its groups."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(words)


def api_command(
    group: click.Group, name: str, *, changes: bool = False, needs_org: bool = True
) -> Callable[
    [Callable[Concatenate["Client", _Parameters], Awaitable[CommandResult]]],
    Callable[Concatenate["Client", _Parameters], Awaitable[CommandResult]],
]:
    """Register an async function of a Client, which returns a CommandResult, in `group`.

    With `needs_org` it receives `slug`, which is that of the login if none is named.
    """

    def register(
        function: Callable[Concatenate["Client", _Parameters], Awaitable[CommandResult]],
    ) -> Callable[Concatenate["Client", _Parameters], Awaitable[CommandResult]]:
        @functools.wraps(function)
        def run(**options: Any) -> CommandResult:  # noqa: ANN401 - click's own values
            return asyncio.run(ask(function, options, needs_org=needs_org))

        run.__dict__["__click_params__"] = [*getattr(function, "__click_params__", ())]
        decorated = org_or_login(run) if needs_org else run
        declare(group, name, place=CommandPlace.EITHER, changes=changes)(decorated)
        return function

    return register


async def ask(
    function: Callable[..., Awaitable[CommandResult]],
    options: dict[str, Any],
    *,
    needs_org: bool = True,
) -> CommandResult:
    """The answer of `function` with a client of what the command works on; see `api_command`."""

    async def work(client: "Client") -> CommandResult:
        if not needs_org:
            return await function(client, **options)
        slug = options["slug"] or await client.default_org()
        if slug is None:
            raise ORG_MISSING
        return await function(client, **options | {"slug": slug})

    target = current_run().target
    if isinstance(target, Remote):
        return await _on_server(target, work, options.get("slug"))

    async def on_data_dir(context: CommandContext) -> CommandResult:
        from service.cli.client import Client

        async with (
            context.nearest_org(options.get("slug")),
            Client.of_data_dir(context.services, context.operator) as client,
        ):
            return await work(client)

    return await within_data_dir(load_settings(), on_data_dir)


async def _on_server(
    target: Remote, work: Callable[["Client"], Awaitable[CommandResult]], slug: str | None
) -> CommandResult:
    from service.cli.client import Client, ServerRefusal, expected_answers

    sign_in_again = None
    if target.is_stored and target.credential.kind == "session":
        from service.cli.sign_in import renew_login

        sign_in_again = functools.partial(renew_login, target.server)
    client = Client(target.server, target.credential, sign_in_again)
    client.known_org = target.org
    with expected_answers(target.server):
        async with client:
            try:
                return await work(client)
            except ServerRefusal as refusal:
                if refusal.code != OrgNotFound.text or client.known_org is None:
                    raise
                text = did_you_mean(str(refusal), slug or "", [client.known_org])
                raise ServerRefusal(text, status=refusal.answered_status) from refusal


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The services over a data dir, and the operator as audit rows name them."""

    services: "Services"
    operator: "Operator"

    @property
    def audit_context(self) -> "AuditContext":
        """The operator and the origin in audit rows of the command's changes."""
        return self.operator.audit_context

    @asynccontextmanager
    async def nearest_org(self, slug: str | None) -> AsyncIterator[None]:
        """Name the organisation that is most like `slug` if the block raises OrgNotFound."""
        try:
            yield
        except OrgNotFound as error:
            known = (await self.slugs()).values()
            raise OrgNotFound(did_you_mean(error.text, slug or "", known)) from error

    async def slugs(self) -> dict[str, str]:
        """The slug of each organisation, by its id."""
        from service.store.organisations import list_orgs

        async with self.services.store.read() as session:
            return {org.id: org.slug for org in await list_orgs(session)}


def data_dir_command(
    group: click.Group, name: str, *, changes: bool = False
) -> Callable[
    [Callable[Concatenate[CommandContext, _Parameters], Awaitable[CommandResult]]],
    Callable[Concatenate[CommandContext, _Parameters], Awaitable[CommandResult]],
]:
    """Register an async function of a CommandContext, which returns a CommandResult, in `group`.

    It works on a data dir only. `changes` tells whether it changes anything there. One that uses
    segments does not run if the bucket's prefix is another installation's.
    """
    is_about_segments = group.name in _SEGMENT_GROUPS or name in _WITH_SEGMENTS

    def register(
        function: Callable[Concatenate[CommandContext, _Parameters], Awaitable[CommandResult]],
    ) -> Callable[Concatenate[CommandContext, _Parameters], Awaitable[CommandResult]]:
        answer: Callable[..., Awaitable[CommandResult]] = function

        @functools.wraps(function)
        def run(**options: Any) -> CommandResult:  # noqa: ANN401 - click's own values
            async def work(context: CommandContext) -> CommandResult:
                if is_about_segments and name not in _WITHOUT_PREFIX:
                    await _confirm_prefix(context.services)
                async with context.nearest_org(options.get("slug")):
                    return await answer(context, **options)

            return asyncio.run(within_data_dir(load_settings(), work))

        declare(group, name, place=CommandPlace.DATA_DIR, changes=changes)(run)
        return function

    return register


async def _confirm_prefix(services: "Services") -> None:
    from analytics.model.errors import StoreUnreachable
    from service.audit.installation import prefix_refusals

    # Without an answer of the bucket the command may still read what is cached, or in the journal.
    with suppress(StoreUnreachable), prefix_refusals():
        await services.lake.confirm_prefix()


async def within_data_dir(
    settings: Settings, work: Callable[[CommandContext], Coroutine[Any, Any, CommandResult]]
) -> CommandResult:
    """The answer of `work` with the services over the data dir of `settings`.

    Raises NOT_INITIALISED, Conflict for a database of another version.
    """
    if find_spec("service.app") is None:
        raise CLIENT_ALONE
    from service.access.callers import cli_caller
    from service.app.bootstrap import check_writable
    from service.app.composition import build_services
    from service.app.logs import configure_logs
    from service.core.clock import utc_now
    from service.core.secrets import with_secrets
    from service.store.migrate import check_schema

    configure_logs("warning")
    if not settings.audit_dir.is_dir():
        raise NOT_INITIALISED(value=str(settings.data_dir))
    check_writable(settings.data_dir)
    services = build_services(with_secrets(settings), utc_now)
    try:
        await check_schema(services.store)
        return await work(CommandContext(services, cli_caller(settings.platform_tenant_id)))
    finally:
        await services.close()
