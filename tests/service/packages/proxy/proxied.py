"""A running service whose install proxy has a registry on loopback, and a key to install with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from quart.typing import TestClientProtocol

from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION
from service.core.settings import Settings
from service.packages.policy.document import parse_policy
from service.packages.policy.repository import set_policy
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, START, SettableClock, World, running_world
from tests.package_documents import (
    SIMPLE,
    npm_version,
    packument,
    simple_file,
    simple_page,
    wheel_name,
)
from tests.polling import until
from tests.service.gates import Gate
from tests.service.packages.install_tokens.jobs import INSTALL, Key, bearer, new_key
from tests.service.packages.proxy.registry import FakeRegistry

OLD = START - timedelta(days=400)
BIG = bytes(range(256)) * 4096
"""A megabyte: more than is held back until the digest is right."""


@dataclass(frozen=True)
class Published:
    """A file: its name, its bytes, when it was published, and what its page says besides."""

    filename: str
    content: bytes
    at: datetime | None = OLD
    says: dict[str, Any] | None = None

    def entry(self, registry: FakeRegistry) -> dict[str, Any]:
        """Its object in PEP 691's `files`."""
        url = f"{registry.url}/files/{self.filename}"
        return simple_file(url, self.content, self.at) | (self.says or {})


def wheel_of(
    name: str,
    version: str,
    content: bytes | None = None,
    at: datetime | None = OLD,
    **says: Any,
) -> Published:
    """A wheel; its bytes are none of a zip file unless they are given."""
    content = f"{name} {version}".encode() if content is None else content
    return Published(wheel_name(name, version), content, at, says)


@dataclass
class Proxied:
    """The service, the registry that it asks, and who installs."""

    world: World
    registry: FakeRegistry
    key: Key
    client: TestClientProtocol

    @property
    def clock(self) -> SettableClock:
        return self.world.clock

    def publishes(self, name: str, *files: Published) -> None:
        """Have the registry offer these files of a Python project, and no others."""
        page = simple_page(name, [file.entry(self.registry) for file in files])
        self.registry.says(f"/simple/{name}/", page, content_type=SIMPLE)
        for file in files:
            self.registry.says(f"/files/{file.filename}", file.content)

    def publishes_npm(
        self, name: str, *versions: str, content: bytes = b"", **changes: Any
    ) -> None:
        """Have the registry offer these versions of an npm package; the last one is `latest`.

        `at` is when they were published, by version.
        """
        at = dict.fromkeys(versions, OLD) | changes.pop("at", {})
        offered = [
            self._npm_version(name, version, content or npm_content(name, version))
            for version in versions
        ]
        path = name.replace("/", "%2F")
        body = packument(name, offered, at, **changes)
        self.registry.says(f"/npm/{path}", body, content_type="application/json")

    def _npm_version(self, name: str, version: str, content: bytes) -> dict[str, Any]:
        path = f"/tarballs/{name}/{version}.tgz"
        self.registry.says(path, content)
        return npm_version(name, version, f"{self.registry.url}{path}", content)

    async def page(self, name: str, **headers: str) -> Any:
        """The page of a project as JSON."""
        response = await self.get(f"pypi/simple/{name}/", accept=SIMPLE, **headers)
        assert response.status_code == 200, await response.get_data(as_text=True)
        return await response.get_json()

    async def path_of(self, name: str, filename: str | None = None) -> str:
        files = (await self.page(name))["files"]
        url = next(f["url"] for f in files if filename in {None, f["filename"]})
        return url.partition("/proxy/acme/")[2]

    async def document(self, name: str, **headers: str) -> Any:
        """The document of an npm package."""
        response = await self.get(f"npm/{name}", **headers)
        assert response.status_code == 200, await response.get_data(as_text=True)
        return await response.get_json()

    async def get(self, path: str, /, **headers: str) -> Any:
        return await self.send("GET", path, **headers)

    async def send(self, method: str, path: str, /, slug: str = "acme", **headers: str) -> Any:
        """The response to a request with the key; names of headers have `_` for `-`."""
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return await self.client.open(
            f"/proxy/{slug}/{path}", method=method, headers=[bearer(self.key.secret), *named]
        )

    async def bare(self, path: str, *headers: tuple[str, str], method: str = "GET") -> Any:
        """The response to a request with these headers alone."""
        return await self.client.open(f"/proxy/acme/{path}", method=method, headers=list(headers))

    async def rows(self) -> list[dict[str, Any]]:
        """The audit rows of installs, oldest first."""
        rows = await self.world.audit()
        return [row for row in reversed(rows) if row["verdict_source"] == "proxy"]

    async def events(self) -> list[str]:
        """What they say."""
        return [row["event"] for row in await self.rows()]

    async def forget_files(self) -> None:
        """Empty the cache of files, as an operator may at any time."""
        files = self.world.services.proxy.files
        # A client has all of a file before the file gets its name in the cache.
        await until(lambda: not files._tasks)
        for file in self.world.services.settings.data_dir.glob("package-cache*/**/kept/*/*"):
            file.unlink()
        files._loaded.clear()

    async def policy(self, **document: Any) -> None:
        async with self.world.services.store.write() as work:
            org = await work.session.get_one(Organisation, self.world.acme.id)
            await set_policy(work, org, parse_policy(document), BY_OPERATOR)


@asynccontextmanager
async def running_proxy(
    settings: Settings,
    registry: FakeRegistry,
    clock: SettableClock | None = None,
    **changes: Any,
) -> AsyncIterator[Proxied]:
    """A world whose proxy asks `registry`, with a key that may install and nothing else."""
    ready = msgspec.structs.replace(settings, **{**_upstreams(registry), **changes})
    async with running_world(ready, clock or SettableClock(), has_sealer=False) as world:
        yield Proxied(world, registry, await new_key(world, INSTALL), world.client)


@asynccontextmanager
async def proxied_gate(gate: Gate, registry: FakeRegistry) -> AsyncIterator[Proxied]:
    """The gate's world with a proxy that asks `registry`: it verifies tokens of the gate's issuer.

    In a process of its own over the same data dir: the gate's has no registry.
    """
    settings = msgspec.structs.replace(gate.world.services.settings, **_upstreams(registry))
    app = create_app(settings, gate.world.clock, gate.issuer.transport(), jobs=seal_jobs)
    try:
        yield Proxied(gate.world, registry, await new_key(gate.world, INSTALL), app.test_client())
    finally:
        await app.extensions[EXTENSION].close()


@asynccontextmanager
async def second_process(proxied: Proxied, **changes: Any) -> AsyncIterator[Proxied]:
    """Another process over the same data dir, with nothing in its memory, and other settings."""
    settings = msgspec.structs.replace(proxied.world.services.settings, **changes)
    app = create_app(settings, proxied.clock, jobs=seal_jobs)
    try:
        yield Proxied(proxied.world, proxied.registry, proxied.key, app.test_client())
    finally:
        await app.extensions[EXTENSION].close()


def _upstreams(registry: FakeRegistry) -> dict[str, Any]:
    return {
        "proxy_pypi_upstream": f"{registry.url}/simple/",
        "proxy_npm_upstream": f"{registry.url}/npm/",
    }


def npm_content(name: str, version: str) -> bytes:
    """The bytes of a tarball that is none."""
    return f"{name}@{version}".encode()


def deny(ecosystem: str, package: str, versions: str = "", **more: Any) -> dict[str, Any]:
    rule = {"ecosystem": ecosystem, "package": package, **more}
    return rule | ({"versions": versions} if versions else {})


async def shown(response: Any) -> tuple[int, str]:
    """Status and error text, which must be JSON."""
    assert response.headers["content-type"] == "application/json"
    body = await response.get_json()
    assert list(body) == ["error"]
    return response.status_code, body["error"]
