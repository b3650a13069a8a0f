"""Documents of package registries: PyPI's simple API (PEP 691) and npm's."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Json = dict[str, Any]

SIMPLE = "application/vnd.pypi.simple.v1+json"


def wheel_name(name: str, version: str) -> str:
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def simple_file(url: str, content: bytes, at: datetime | None = None, **more: Any) -> Json:
    """An entry of a page's `files`, with the name that its URL ends with."""
    file: Json = {
        "filename": url.rpartition("/")[2],
        "url": url,
        "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
        "size": len(content),
    }
    return file | ({} if at is None else {"upload-time": at.isoformat()}) | more


def simple_page(name: str, files: Sequence[Json] = (), **more: Any) -> bytes:
    """The page of a project."""
    page = {"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": [*files]}
    return json.dumps(page | more).encode()


def integrity(content: bytes) -> str:
    """The digest by which npm's clients verify a tarball."""
    return f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"


def npm_version(
    name: str, version: str, tarball: str, content: bytes, dist: Json | None = None, **more: Any
) -> Json:
    """A version whose tarball is `content`; `dist` is said of it beside."""
    described = {"tarball": tarball, "integrity": integrity(content), **(dist or {})}
    return {"name": name, "version": version, **more, "dist": described}


def packument(
    name: str, versions: Sequence[Json], at: Mapping[str, datetime], **more: Any
) -> bytes:
    """The document of a package, whose last version is `latest`."""
    document: Json = {
        "name": name,
        "dist-tags": {"latest": versions[-1]["version"]},
        "versions": {version["version"]: version for version in versions},
        "time": {version: instant.isoformat() for version, instant in at.items()},
    }
    return json.dumps(document | more).encode()
