"""The API as commands ask it: that of a server, or of the app over this machine's data dir."""

import functools
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from service.cli.commands import current_run
from service.cli.server_client import ServerClient
from service.cli.target import Remote, WrongPlace
from service.core.errors import Invalid, NotFound

if TYPE_CHECKING:
    import httpx2

    from service.cli.context import CommandContext

_HERE: Final = "http://localhost"
"""The origin of requests within this process; it is not shown."""


_PAGE: Final = 500
"""Entries of a page: as many as the API answers at once."""

Form = dict[str, Any]
"""An answer of the API."""


def org_path(slug: str, *parts: str) -> str:
    """The API's path below an organisation; each part is escaped."""
    return _below("/api/v1/admin/orgs", slug, *parts)


def operator_path(slug: str | None = None, *parts: str) -> str:
    """The API's path for organisations as the operator sees them; each part is escaped."""
    root = "/api/v1/operator/orgs"
    return root if slug is None else _below(root, slug, *parts)


def install_tokens_path(slug: str) -> str:
    """The endpoint at which CI jobs of an organisation get install tokens."""
    return _below("/api/v1/orgs", slug, "install-tokens")


def _below(root: str, slug: str, *parts: str) -> str:
    if slug in {"", ".", ".."}:
        raise Invalid("the organisation must be a slug, such as acme")
    for part in parts:
        # Clients and servers resolve these: the request would go to what is above.
        if part in {"", ".", ".."}:
            raise NotFound(f"nothing has the id or name {part!r}")
    return "/".join([root, *(quote(part, safe="") for part in (slug, *parts))])


def given(**members: object) -> dict[str, Any]:
    """Those of `members` that are not None: parameters or a body, without what was not asked."""
    return {name: value for name, value in members.items() if value is not None}


class Client(ServerClient):
    """Requests of one command. Raises ServerRefusal, or on a data dir the app's own errors."""

    context: "CommandContext | None" = None
    known_org: str | None = None
    """The organisation of the login, once it is known."""

    @classmethod
    def of_server(cls, target: Remote) -> Self:
        """The API of a server."""
        sign_in_again = None
        if target.is_stored and target.credential.kind == "session":
            from service.cli.login import renew_login

            sign_in_again = functools.partial(renew_login, target.server)
        client = cls(target.server, target.credential, sign_in_again)
        client.known_org = target.org
        return client

    @classmethod
    def of_data_dir(cls, context: "CommandContext") -> Self:
        """The API of the app over the services of `context`, with the operator's rights."""
        from service.cli.in_process import AppTransport, operator_app

        transport: httpx2.AsyncBaseTransport = AppTransport(
            operator_app(context.services), context.operator
        )
        client = cls(_HERE, None, transport=transport)
        client.context = context
        return client

    @property
    def place(self) -> str | None:
        """The server, for titles; None for the data dir."""
        return self.server if self.context is None else None

    @property
    def at_place(self) -> str:
        """` at ` and the server, for titles; empty for the data dir."""
        return f" at {self.server}" if self.context is None else ""

    async def default_org(self) -> str | None:
        """The organisation to work on if none is named: that of the login or of the credential.

        None for the operator, who acts in all.
        """
        if self.context is None and self.known_org is None:
            self.known_org = (await self.get("/api/v1/session"))["org"]
        return self.known_org

    def data_dir(self, what: str) -> "CommandContext":
        """The services over the data dir, for what servers do not offer. Raises WrongPlace."""
        if self.context is None:
            target = current_run().target
            raise WrongPlace.for_command(what, self.server, "" if target is None else target.why)
        return self.context

    async def all_pages(self, path: str, member: str) -> list[Form]:
        """All entries of a list that is answered in pages; `member` names them in an answer."""
        entries: list[Form] = []
        cursor = None
        while True:
            page = await self.get(path, given(limit=_PAGE, cursor=cursor))
            entries += page[member]
            cursor = page["next_cursor"]
            if cursor is None:
                return entries

    async def part_of(self, path: str, member: str, name: str) -> str:
        """`name` as a part of a path: one with a slash, which no part can have, by its id."""
        if "/" in name:
            for entry in await self.all_pages(path, member):
                if name in {entry.get("name"), entry.get("email")}:
                    return str(entry["id"])
        return name

    async def project_id(self, slug: str, project: str) -> str:
        """The id of `project`; on a data dir it may be named. Raises NotFound."""
        if self.context is None:
            return project
        from service.store.organisations import get_org, get_project

        async with self.context.services.store.read() as session:
            return (await get_project(session, await get_org(session, slug), project)).id
