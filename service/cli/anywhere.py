"""Commands that work both on a server and on the data dir of this machine."""

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec

import click

from service.cli.backend import Backend
from service.cli.context import (
    EXIT_INTERRUPTED,
    Answer,
    CommandContext,
    one_line_failures,
    output_options,
    refuse_unencodable_text,
    within_data_dir,
)
from service.cli.target import ORG_VARIABLE, Remote, choose_target
from service.errors import Refusal
from service.settings import load_settings

_Parameters = ParamSpec("_Parameters")
Command = Callable[Concatenate[Backend, _Parameters], Awaitable[Answer]]

_TARGET_OPTIONS: Final = (
    click.option(
        "--server", metavar="URL", help="Work on this server; default: COUNTERSIGN_SERVER."
    ),
    click.option("--local", "is_local", is_flag=True, help="Work on this machine's data dir."),
    click.option(
        "--insecure", "is_insecure", is_flag=True, help="Allow http:// to another machine."
    ),
)


@dataclass(frozen=True, slots=True)
class Output:
    """How a command writes: JSON for scripts, and instants in UTC."""

    as_json: bool
    is_exact: bool


class OrgMissing(Refusal):
    """No organisation is named, and none is known from the login."""

    status = 400
    text = f"name the organisation: --org SLUG, or {ORG_VARIABLE}"


def anywhere_command(
    group: click.Group, name: str, *, needs_org: bool = True, takes_output: bool = False
) -> Callable[[Command[_Parameters]], Command[_Parameters]]:
    """Register an async function of a Backend, which returns an Answer, in `group`.

    With `needs_org` it receives `slug`, which is that of the login if none is named; with
    `takes_output` it receives `output`, to write to before it ends.
    """

    def register(function: Command[_Parameters]) -> Command[_Parameters]:
        @functools.wraps(function)
        def run(
            *,
            as_json: bool,
            is_exact: bool,
            server: str | None,
            is_local: bool,
            is_insecure: bool,
            **options: Any,  # noqa: ANN401 - click's own values
        ) -> None:
            with one_line_failures(as_json=as_json):
                refuse_unencodable_text(options)
                if takes_output:
                    options["output"] = Output(as_json=as_json, is_exact=is_exact)
                work = functools.partial(_named, function, options, needs_org=needs_org)
                target = choose_target(server, is_local=is_local, is_insecure=is_insecure)
                try:
                    if isinstance(target, Remote):
                        with _expected_answers(target):
                            answer = asyncio.run(_on_server(target, work))
                            answer.end(as_json=as_json, is_exact=is_exact)
                        return
                    answer = asyncio.run(_on_data_dir(work, options))
                except KeyboardInterrupt:
                    if options.get("is_followed"):  # a command that follows rows ends no other way
                        sys.exit(EXIT_INTERRUPTED)
                    raise
                answer.end(as_json=as_json, is_exact=is_exact)

        run.__dict__["__click_params__"] = [*getattr(function, "__click_params__", ())]
        decorated = target_options(output_options(run))
        if needs_org:
            decorated = _ORG_OPTION(decorated)
        group.command(name)(decorated)
        return function

    return register


def target_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what it works on."""
    for option in reversed(_TARGET_OPTIONS):
        function = option(function)
    return function


_ORG_OPTION: Final = click.option(
    "--org",
    "slug",
    metavar="SLUG",
    envvar=ORG_VARIABLE,
    help="The organisation; default: COUNTERSIGN_ORG, or that of the login.",
)


async def _named(
    function: Callable[..., Awaitable[Answer]],
    options: dict[str, Any],
    backend: Backend,
    *,
    needs_org: bool,
) -> Answer:
    if needs_org:
        slug = options["slug"] or await backend.default_org()
        if slug is None:
            raise OrgMissing
        options = options | {"slug": slug}
    return await function(backend, **options)


def _expected_answers(target: Remote) -> AbstractContextManager[None]:
    from service.cli.server_failures import expected_answers

    return expected_answers(target.server)


async def _on_server(target: Remote, work: Callable[[Backend], Awaitable[Answer]]) -> Answer:
    from service.cli.remote_backend import RemoteBackend
    from service.cli.server_client import ServerClient

    async with ServerClient(target.server, target.credential) as client:
        return await work(RemoteBackend(client, target.org))


async def _on_data_dir(
    work: Callable[[Backend], Awaitable[Answer]], options: dict[str, Any]
) -> Answer:
    async def run(context: CommandContext) -> Answer:
        from service.cli.local_backend import LocalBackend

        async with context.nearest_org(options.get("slug")):
            return await work(LocalBackend(context))

    return await within_data_dir(load_settings(), run)
