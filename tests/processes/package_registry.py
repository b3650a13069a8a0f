"""A package registry on loopback with real wheels and tarballs, for real package managers."""

import asyncio
import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from tests.package_documents import (
    SIMPLE,
    integrity,
    npm_version,
    packument,
    simple_file,
    simple_page,
    wheel_name,
)
from tests.polling import HANG_S
from tests.service.packages.proxy.registry import Asked, head, running_registry

OLD = datetime(2024, 1, 1, tzinfo=UTC)


def wheel(
    name: str,
    version: str,
    *,
    requires: tuple[str, ...] = (),
    extras: dict[str, str] | None = None,
) -> bytes:
    """A wheel whose one module says its version, as its command does; uv and pipx want a command.

    `extras` have the requirement of each extra.
    """
    module = _escaped(name)
    info = f"{module}-{version}.dist-info"
    lines = [f"Requires-Dist: {each}" for each in requires]
    for extra, requirement in (extras or {}).items():
        lines += [f"Provides-Extra: {extra}", f"Requires-Dist: {requirement}; extra == {extra!r}"]
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]
    files = {
        f"{module}.py": f"version = {version!r}\n\n\ndef main():\n    print(version)\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
        f"{info}/METADATA": "\n".join([*head, ""]),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    files[f"{info}/RECORD"] = _record(files) + f"{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return packed.getvalue()


def tarball(name: str, version: str, *, program: str | None = None, **more: Any) -> bytes:
    """An npm package whose main file exports its version; `more` goes to its package.json.

    `program` is the path of a file that prints the version when it is run.
    """
    manifest = {"name": name, "version": version, "main": "index.js", **more}
    files = {
        "package/package.json": json.dumps(manifest),
        "package/index.js": f"module.exports = {version!r}\n",
    }
    if program is not None:
        files[f"package/{program}"] = f"console.log({f'{name} {version}'!r})\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


@dataclass(frozen=True)
class Tarball:
    """A version of an npm package, and what its document says of it beside its name."""

    body: bytes
    published_at: datetime
    more: dict[str, Any]


FAULTS = ("hangs", "resets", "sends a page", "fails", "sends half")
_PAGE = b"<!doctype html><title>Sign in</title><a href=/login>Sign in to this network</a>"


@dataclass
class PackageRegistry:
    """What it has; changes are seen by the next request."""

    url: str = ""
    wheels: dict[str, dict[str, tuple[bytes, datetime]]] = field(default_factory=dict)
    tarballs: dict[str, dict[str, Tarball]] = field(default_factory=dict)
    attested: set[tuple[str, str]] = field(default_factory=set)
    """The releases, by name and version, that it has an attestation of."""

    asked: list[str] = field(default_factory=list)
    is_down: bool = False
    fault: str | None = None
    """What it does in place of every answer: one of FAULTS."""

    busy_for: int = 0
    """So many requests from now on are refused with 429, and a `Retry-After` of a second."""

    sign: Callable[[str], dict[str, str]] | None = None
    """The signature that npm's registry has of a release, which it names with its digest."""

    def add_wheel(self, name: str, version: str, at: datetime = OLD, **more: Any) -> None:
        self.wheels.setdefault(name, {})[version] = (wheel(name, version, **more), at)

    def add_tarball(self, name: str, version: str, at: datetime = OLD, **more: Any) -> None:
        body = tarball(name, version, **more)
        told = {key: value for key, value in more.items() if key != "program"}
        self.tarballs.setdefault(name, {})[version] = Tarball(body, at, told)

    async def reply(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        """Answer as its faults want it; `npm audit`, the one POST, is told of nothing."""
        self.asked.append(asked.path)
        if self.busy_for > 0:
            self.busy_for -= 1
            writer.write(head(429, retry_after="1", content_length="0"))
            return
        if asked.method == "POST":
            is_audit = asked.path.startswith("/npm/-/npm/v1/security/")
            answer = ("application/json", b"{}") if is_audit else None
        else:
            answer = self.answer(asked.path)
        is_down = self.is_down or self.fault == "fails"
        status = 503 if is_down else 404 if answer is None else 200
        content_type, body = (None if is_down else answer) or ("text/plain", b"")
        length = len(body)
        match self.fault:
            case "hangs":
                await asyncio.Event().wait()
            case "resets":
                writer.transport.abort()
                return
            case "sends a page":
                content_type, body, length = "text/html", _PAGE, len(_PAGE)
            case "sends half":
                body = body[: length // 2]
        writer.write(head(status, content_type=content_type, content_length=str(length)) + body)

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """The content type and body at `path`."""
        parts = unquote(path).strip("/").split("/")
        if parts[0] == "simple" and len(parts) == 2 and parts[1] in self.wheels:
            return SIMPLE, self._project(parts[1])
        if parts[0] == "wheels":
            return "application/zip", self.wheels[parts[1]][parts[2]][0]
        if parts[0] == "tarballs":
            return "application/gzip", self.tarballs["/".join(parts[1:-2])][parts[-2]].body
        if parts[0] == "npm" and "/".join(parts[1:]) in self.tarballs:
            return "application/json", self._packument("/".join(parts[1:]))
        return None

    def _project(self, name: str) -> bytes:
        files = []
        for version, (body, at) in self.wheels[name].items():
            url = f"{self.url}/integrity/{name}/{version}"
            said = {"provenance": url} if (name, version) in self.attested else {}
            path = f"/wheels/{name}/{version}/{wheel_name(name, version)}"
            files.append(simple_file(path, body, at, **said))
        return simple_page(name, files, versions=list(self.wheels[name]))

    def _signed(self, name: str, version: str, tarball: Tarball) -> dict[str, Any]:
        if self.sign is None:
            return {}
        return {"signatures": [self.sign(f"{name}@{version}:{integrity(tarball.body)}")]}

    def _attested(self, name: str, version: str) -> dict[str, Any]:
        if (name, version) not in self.attested:
            return {}
        url = f"{self.url}/npm/-/npm/v1/attestations/{name}@{version}"
        provenance = {"predicateType": "https://slsa.dev/provenance/v1"}
        return {"attestations": {"url": url, "provenance": provenance}}

    def _packument(self, name: str) -> bytes:
        versions = [
            npm_version(
                name,
                version,
                f"{self.url}/tarballs/{name}/{version}/package.tgz",
                tarball.body,
                {
                    "shasum": hashlib.sha1(tarball.body, usedforsecurity=False).hexdigest(),
                    **self._signed(name, version, tarball),
                    **self._attested(name, version),
                },
                main="index.js",
                **tarball.more,
            )
            for version, tarball in self.tarballs[name].items()
        ]
        return packument(
            name, versions, {v: t.published_at for v, t in self.tarballs[name].items()}
        )


def _record(files: dict[str, str]) -> str:
    """The lines of RECORD: poetry's installer refuses files without a digest."""
    return "".join(
        f"{path},sha256={_urlsafe(hashlib.sha256(text.encode()))},{len(text)}\n"
        for path, text in files.items()
    )


def _escaped(name: str) -> str:
    """The name as file names of wheels have it."""
    return name.replace("-", "_")


def _urlsafe(digest: Any) -> str:
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


@contextmanager
def running_packages() -> Iterator[PackageRegistry]:
    """A registry without packages; it answers in a thread of its own, whatever the test does."""
    registry = PackageRegistry()
    with ThreadPoolExecutor(1) as thread, asyncio.Runner() as runner:
        is_up = threading.Event()
        over = asyncio.Event()

        async def serve() -> None:
            async with running_registry(registry.reply) as fake:
                registry.url = fake.url
                is_up.set()
                await over.wait()

        serving = thread.submit(runner.run, serve())
        assert is_up.wait(HANG_S)
        try:
            yield registry
        finally:
            runner.get_loop().call_soon_threadsafe(over.set)
            serving.result(HANG_S)
