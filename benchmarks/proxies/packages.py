"""What the registry has: packages of any size, and some that package managers can install.

A document's name says what it is: `small`, `large` and `huge-3` are listed only, `part-0-07` can be
installed, and `all-0` requires the parts of its set. Each set and each huge document is another
package, so that a proxy has never seen it before.
"""

import hashlib
import json
import random
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from tests.processes.package_registry import tarball, wheel

FILES: Final = {"small": 5, "usual": 120, "large": 1_450, "huge": 34_000}
"""Files of a Python project by the beginning of its name: 3 KB, 80 KB, 1 MB and 20 MB."""

VERSIONS: Final = {"small": 1, "usual": 25, "large": 250, "huge": 6_000}
"""Versions of an npm package: 4 KB, 100 KB, 1 MB and 20 MB."""

PARTS: Final = 40
"""What one install brings."""

OLDER: Final = 60
"""Releases of an installable package that are listed and never asked for."""

VERSION: Final = "9.0.0"
FULL: Final = "application/json"
SIMPLE: Final = "application/vnd.pypi.simple.v1+json"
_AT: Final = "2024-01-01T00:00:00Z"
_FILLED_BYTES: Final = 60_000

Json = dict[str, Any]


def parts_of(number: str) -> list[str]:
    """The packages of one set."""
    return [f"part-{number}-{part:02}" for part in range(PARTS)]


def simple_page(name: str, url: str) -> bytes:
    """The page of a Python project (PEP 691); `url` is the registry's."""
    count = FILES.get(name.partition("-")[0])
    older = (f"{_escaped(name)}-1.{number}-py3-none-any.whl" for number in range(count or OLDER))
    files = [_simple_file(filename, url, _unread(filename), 1000) for filename in older]
    if count is None:
        body, metadata = wheel_of(name)
        filename = f"{_escaped(name)}-{VERSION}-py3-none-any.whl"
        core = {"sha256": hashlib.sha256(metadata).hexdigest()}
        digest = hashlib.sha256(body).hexdigest()
        newest = _simple_file(filename, url, digest, len(body))
        files.append({**newest, "core-metadata": core})
    return _json({"meta": {"api-version": "1.1"}, "name": name, "files": files})


def packument(name: str, url: str) -> bytes:
    """The document of an npm package; `url` is the registry's."""
    count = VERSIONS.get(name.partition("-")[0])
    older = [f"1.0.{number}" for number in range(count or OLDER)]
    versions = {
        version: _npm_version(name, version, url, _unread_sri(version)) for version in older
    }
    if count is None:
        digest = b64encode(hashlib.sha512(tarball_of(name)).digest()).decode()
        newest = _npm_version(name, VERSION, url, f"sha512-{digest}")
        versions[VERSION] = newest | {"dependencies": dict.fromkeys(_required(name), VERSION)}
    document = {
        "name": name,
        "dist-tags": {"latest": list(versions)[-1]},
        "time": dict.fromkeys(versions, _AT),
        "versions": versions,
    }
    return _json(document)


@cache
def wheel_of(name: str) -> tuple[bytes, bytes]:
    """An installable wheel, and the metadata in it."""
    requires = tuple(f"{part}=={VERSION}" for part in _required(name))
    lines = [f"Requires-Dist: {each}" for each in requires]
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {VERSION}", *lines]
    return wheel(name, VERSION, requires=requires), "\n".join([*head, ""]).encode()


@cache
def tarball_of(name: str) -> bytes:
    """An installable tarball."""
    filled = random.Random(name).randbytes(_FILLED_BYTES // 2).hex()  # noqa: S311 - no secret
    required = dict.fromkeys(_required(name), VERSION)
    return tarball(name, VERSION, dependencies=required, description=filled)


def _required(name: str) -> Iterator[str]:
    kind, _, number = name.partition("-")
    return iter(parts_of(number) if kind == "all" else ())


def _simple_file(filename: str, url: str, digest: str, size: int) -> Json:
    return {
        "filename": filename,
        "url": f"{url}/files/{digest[:2]}/{digest[2:4]}/{digest[4:]}/{filename}",
        "hashes": {"sha256": digest},
        "requires-python": ">=3.9",
        "size": size,
        "upload-time": _AT,
        "yanked": False,
        "core-metadata": False,
        "data-dist-info-metadata": False,
        "provenance": f"{url}/integrity/{filename}/{digest}/provenance",
    }


def _npm_version(name: str, version: str, url: str, integrity: str) -> Json:
    return {
        "name": name,
        "version": version,
        "description": "A package of the benchmark, as long as others are.",
        "main": "index.js",
        "scripts": {f"script-{number}": "node --test" for number in range(20)},
        "devDependencies": {f"package-{number:03}": f"^{number}.0.0" for number in range(100)},
        "dist": {
            "tarball": f"{url}/npm/{name}/-/{name}-{version}.tgz",
            "integrity": integrity,
            "shasum": hashlib.sha1(version.encode(), usedforsecurity=False).hexdigest(),
        },
    }


def _unread(filename: str) -> str:
    return hashlib.sha256(filename.encode()).hexdigest()


def _unread_sri(version: str) -> str:
    return f"sha512-{b64encode(hashlib.sha512(version.encode()).digest()).decode()}"


def _escaped(name: str) -> str:
    return name.replace("-", "_")


def _json(document: Json) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
