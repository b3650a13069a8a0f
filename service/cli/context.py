"""What commands on a data dir share: its services, and the operator who changes it.

Importing it imports neither the services nor their dependencies, which completion and commands on a
server do not need.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from service.cli.answers import Answer
from service.cli.commands import Place, declare
from service.cli.nearest import did_you_mean
from service.core.errors import OrgNotFound, Refusal
from service.core.settings import Settings, load_settings

if TYPE_CHECKING:
    from analytics.model.rows import AuditContext
    from service.access.callers import Operator
    from service.app.composition import Services
    from service.store.store import UnitOfWork
    from service.store.tables import Organisation

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
        from service.store.organisations import get_org

        async with self.services.store.write() as work:
            yield work, await get_org(work.session, slug)

    @asynccontextmanager
    async def nearest_org(self, slug: str | None) -> AsyncIterator[None]:
        """Name the organisation that is most like `slug` if the block raises OrgNotFound."""
        from service.store.organisations import list_orgs

        try:
            yield
        except OrgNotFound as error:
            async with self.services.store.read() as session:
                known = [org.slug for org in await list_orgs(session)]
            raise OrgNotFound(did_you_mean(error.text, slug or "", known)) from error


def command(
    group: click.Group, name: str, *, changes: bool = False
) -> Callable[
    [Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]]],
    Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]],
]:
    """Register an async function of a CommandContext, which returns an Answer, in `group`.

    It works on a data dir only. `changes` tells whether it changes anything there.
    """

    def register(
        function: Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]],
    ) -> Callable[Concatenate[CommandContext, _Parameters], Awaitable[Answer]]:
        @functools.wraps(function)
        def run(**options: Any) -> Answer:  # noqa: ANN401 - click's own values
            uses_segments = group.name in _SEGMENT_GROUPS and name not in _WITHOUT_PREFIX
            return on_data_dir(function, options, uses_segments=uses_segments)

        declare(group, name, place=Place.DATA_DIR, changes=changes)(run)
        return function

    return register


def on_data_dir(
    function: Callable[..., Awaitable[Answer]],
    options: dict[str, Any],
    *,
    uses_segments: bool = False,
) -> Answer:
    """The answer of `function` on the configured data dir.

    One that uses segments does not run if the bucket's prefix is another installation's.
    """

    async def run(context: CommandContext) -> Answer:
        if uses_segments:
            await _confirm_prefix(context.services)
        async with context.nearest_org(options.get("slug")):
            return await function(context, **options)

    return asyncio.run(within_data_dir(load_settings(), run))


async def _confirm_prefix(services: "Services") -> None:
    from analytics.model.errors import StoreUnreachable
    from service.audit.installation import prefix_refusals

    # Without an answer of the bucket the command may still read what is cached, or in the journal.
    with suppress(StoreUnreachable), prefix_refusals():
        await services.lake.confirm_prefix()


async def within_data_dir(
    settings: Settings, work: Callable[[CommandContext], Coroutine[Any, Any, Answer]]
) -> Answer:
    """The answer of `work` with the services over the data dir of `settings`.

    Raises NotInitialised, Conflict for a database of another version.
    """
    from service.access.callers import cli_caller
    from service.app.bootstrap import check_writable
    from service.app.composition import build_services
    from service.app.logs import configure_logs
    from service.core.clock import utc_now
    from service.core.secrets import with_secrets
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


org_option = click.option(
    "--org",
    "slug",
    required=True,
    metavar="SLUG",
    envvar="COUNTERSIGN_ORG",
    help="The organisation; default: COUNTERSIGN_ORG.",
)
