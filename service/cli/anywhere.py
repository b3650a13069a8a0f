"""Commands that work both on a server and on the data dir of this machine."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Final, ParamSpec

import click

from service.cli.answers import Answer
from service.cli.backend import Backend
from service.cli.commands import Place, current_run, declare
from service.cli.context import CommandContext, within_data_dir
from service.cli.target import ORG_VARIABLE, Remote
from service.core.exit_codes import WrongUsage
from service.core.settings import load_settings

_Parameters = ParamSpec("_Parameters")
Command = Callable[Concatenate[Backend, _Parameters], Awaitable[Answer]]


class OrgMissing(WrongUsage):
    """No organisation is named, and none is known from the login."""

    text = f"name the organisation: --org SLUG, or {ORG_VARIABLE}"


def anywhere_command(
    group: click.Group, name: str, *, changes: bool = False, needs_org: bool = True
) -> Callable[[Command[_Parameters]], Command[_Parameters]]:
    """Register an async function of a Backend, which returns an Answer, in `group`.

    With `needs_org` it receives `slug`, which is that of the login if none is named.
    """

    def register(function: Command[_Parameters]) -> Command[_Parameters]:
        @functools.wraps(function)
        def run(**options: Any) -> Answer:  # noqa: ANN401 - click's own values
            work = functools.partial(_named, function, options, needs_org=needs_org)
            target = current_run().target
            if isinstance(target, Remote):
                with _expected_answers(target):
                    return asyncio.run(_on_server(target, work))
            return asyncio.run(_on_data_dir(work, options))

        run.__dict__["__click_params__"] = [*getattr(function, "__click_params__", ())]
        decorated = _ORG_OPTION(run) if needs_org else run
        declare(group, name, place=Place.EITHER, changes=changes)(decorated)
        return function

    return register


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

    sign_in_again = None
    if target.is_stored and target.credential.kind == "session":
        from service.cli.login import renew_login

        sign_in_again = functools.partial(renew_login, target.server)
    async with ServerClient(target.server, target.credential, sign_in_again) as client:
        return await work(RemoteBackend(client, target.org))


async def _on_data_dir(
    work: Callable[[Backend], Awaitable[Answer]], options: dict[str, Any]
) -> Answer:
    async def run(context: CommandContext) -> Answer:
        from service.cli.local_backend import LocalBackend

        async with context.nearest_org(options.get("slug")):
            return await work(LocalBackend(context))

    return await within_data_dir(load_settings(), run)
