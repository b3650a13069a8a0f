"""Commands that work both on a server and on the data dir of this machine."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Final, ParamSpec

import click

from service.cli.answers import Answer
from service.cli.client import Client
from service.cli.commands import Place, current_run, declare
from service.cli.context import CommandContext, within_data_dir
from service.cli.nearest import did_you_mean
from service.cli.target import ORG_VARIABLE, Remote
from service.core.errors import OrgNotFound
from service.core.exit_codes import WrongUsage
from service.core.settings import load_settings

_Parameters = ParamSpec("_Parameters")
Command = Callable[Concatenate[Client, _Parameters], Awaitable[Answer]]


class OrgMissing(WrongUsage):
    """No organisation is named, and none is known from the login."""

    text = f"name the organisation: --org SLUG, or {ORG_VARIABLE}"


def anywhere_command(
    group: click.Group, name: str, *, changes: bool = False, needs_org: bool = True
) -> Callable[[Command[_Parameters]], Command[_Parameters]]:
    """Register an async function of a Client, which returns an Answer, in `group`.

    With `needs_org` it receives `slug`, which is that of the login if none is named.
    """

    def register(function: Command[_Parameters]) -> Command[_Parameters]:
        @functools.wraps(function)
        def run(**options: Any) -> Answer:  # noqa: ANN401 - click's own values
            work = functools.partial(_named, function, options, needs_org=needs_org)
            target = current_run().target
            if isinstance(target, Remote):
                with _expected_answers(target):
                    return asyncio.run(_on_server(target, work, options.get("slug")))
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
    client: Client,
    *,
    needs_org: bool,
) -> Answer:
    if needs_org:
        slug = options["slug"] or await client.default_org()
        if slug is None:
            raise OrgMissing
        options = options | {"slug": slug}
    return await function(client, **options)


def _expected_answers(target: Remote) -> AbstractContextManager[None]:
    from service.cli.server_failures import expected_answers

    return expected_answers(target.server)


async def _on_server(
    target: Remote, work: Callable[[Client], Awaitable[Answer]], slug: str | None
) -> Answer:
    from service.cli.server_failures import ServerRefusal

    async with Client.of_server(target) as client:
        try:
            return await work(client)
        except ServerRefusal as refusal:
            if refusal.code != OrgNotFound.text or client.known_org is None:
                raise
            text = did_you_mean(str(refusal), slug or "", [client.known_org])
            raise ServerRefusal(text, status=refusal.answered_status) from refusal


async def _on_data_dir(
    work: Callable[[Client], Awaitable[Answer]], options: dict[str, Any]
) -> Answer:
    async def run(context: CommandContext) -> Answer:
        nearest_org = context.nearest_org(options.get("slug"))
        async with nearest_org, Client.of_data_dir(context) as client:
            return await work(client)

    return await within_data_dir(load_settings(), run)
