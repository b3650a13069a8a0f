"""A package of an npm registry, in the compact form that is cached and decided on."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from service.proxy.documents import decode_versioned, encode_versioned

VERSIONS_MAX: Final = 100_000

_ENCODING: Final = b"npm-package/1\n"
"""To be increased when the classes below change: cached bytes of older forms are dropped."""


class PackageVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One version that is offered, with its one tarball.

    `path` is upstream's, verbatim, on the origin with the key `origin`. `digests` are
    `algorithm:hex`, of `dist.integrity` and `dist.shasum`; there may be none. `deprecated` is
    upstream's text, True if it gives none.

    The rest is JSON as upstream wrote it, members of an object without its braces, so that
    fields we do not know survive: `install` are those of the abbreviated form, `extra` all others,
    `dist` those of `dist` except `tarball`.
    """

    version: str
    origin: str
    path: str
    digests: frozenset[str]
    published_at: datetime | None
    deprecated: bool | str
    dist: bytes
    install: bytes
    extra: bytes


class Package(msgspec.Struct, frozen=True, array_like=True):
    """What one upstream says of one package.

    `versions` is in upstream's order, `tags` has offered versions alone. `time` is the JSON object
    of publication instants, `extra` the members of the document that are not named here, without
    braces. `dropped` counts, by reason, versions and tags that upstream has and that are not
    offered.
    """

    name: str
    tags: dict[str, str]
    versions: dict[str, PackageVersion]
    modified: str | None
    time: bytes
    extra: bytes
    dropped: Mapping[str, int] = {}


def file_name(name: str, version: str) -> str:
    """The name that the tarball of `version` is served as.

    npm's own convention: yarn and pnpm derive it without asking. No two versions share one.
    """
    return f"{name.rpartition('/')[2]}-{version}.tgz"


def find_file(package: Package, file: str) -> PackageVersion | None:
    """The version whose tarball is `file`, the part of its URL behind `/-/`; None if there is none.

    Lockfiles that were made without the proxy may have the name that upstream uses, and that name
    may begin with the scope. A name that upstream uses for several versions names none of them,
    unless it is what `file_name` gives one of them.
    """
    scope, is_scoped, _ = package.name.partition("/")
    if is_scoped:
        file = file.removeprefix(f"{scope}/")
    stem = f"{package.name.rpartition('/')[2]}-"
    if file.startswith(stem) and file.endswith(".tgz"):
        version = package.versions.get(file.removeprefix(stem).removesuffix(".tgz"))
        if version is not None:
            return version
    end = f"/{file}"
    matches = [v for v in package.versions.values() if _unquoted(v.path).endswith(end)]
    return matches[0] if len(matches) == 1 and "/" not in file else None


def _unquoted(path: str) -> str:
    return unquote(path) if "%" in path else path


def encode_package(package: Package) -> bytes:
    """`package` for the document cache."""
    head = replace(package, versions={})
    return encode_versioned(_ENCODING, head, list(package.versions.values()))


def decode_package(encoded: bytes) -> Package:
    """What `encode_package` encoded. Raises EncodingUnknown: fetch the document again."""
    head, versions = decode_versioned(_ENCODING, encoded, Package, PackageVersion)
    return replace(head, versions={version.version: version for version in versions})


def release_package(package: Package) -> None:
    """Free the versions of a package that is not used any more, one by one."""
    while package.versions:
        package.versions.popitem()
