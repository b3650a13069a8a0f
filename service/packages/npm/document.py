"""A package of an npm registry, in the compact form that is cached and that decisions use."""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import Provenance, Release
from service.packages.proxy.documents import decode_versioned, encode_versioned
from service.packages.proxy.file_keys import KnownFile

VERSIONS_MAX: Final = 100_000

_ENCODING: Final = b"npm-package/3\n"
"""To be increased when the classes below change: cached bytes of older forms are dropped."""


class PackageVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One offered version, with its one tarball.

    `path` is upstream's, verbatim, on the origin with the key `origin`. `digests` are
    `algorithm:hex`, of `dist.integrity` and `dist.shasum`; there may be none. `deprecated` is
    upstream's text, or True if upstream gives none. `provenance` is None if it is not known.

    The rest is upstream's JSON, as the members of an object without its braces, so that fields
    unknown to us survive: `install` has those of the abbreviated form, `extra` all others, and
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
    provenance: Provenance | None
    attestation: str | None

    def release(self, package: str) -> Release:
        """What policy decides on. Deprecated versions are installed like others."""
        return Release(
            Ecosystem.NPM,
            package,
            self.version,
            self.published_at,
            self.digests,
            provenance=self.provenance,
            attestation=self.attestation,
        )


class NpmPackage(msgspec.Struct, frozen=True, array_like=True):
    """What one upstream says about one package.

    `versions` is in upstream's order; `tags` has only offered versions. `time` is the JSON object
    of publication instants, `extra` the document's other members, without braces. `dropped` counts,
    by reason, upstream's versions, tags and other members that are not offered. If
    `is_unpublished`, upstream says why there are no versions.
    """

    name: str
    tags: dict[str, str]
    versions: dict[str, PackageVersion]
    modified: str | None
    time: bytes
    extra: bytes
    dropped: Mapping[str, int] = {}
    is_unpublished: bool = False


def releases_of(package: NpmPackage) -> Iterator[Release]:
    """What policy decides on, version by version."""
    return (version.release(package.name) for version in package.versions.values())


def file_name(name: str, version: str) -> str:
    """The file name under which the tarball of `version` is served.

    npm's own convention, which yarn and pnpm rely on. No two versions share a name.
    """
    return f"{name.rpartition('/')[2]}-{version}.tgz"


def with_known(package: NpmPackage, known: Mapping[str, KnownFile]) -> NpmPackage:
    """`package` with the tarballs that were served before in place of others of their names."""
    changed = {}
    for version in package.versions.values():
        before = known.get(file_name(package.name, version.version))
        if before is not None and not before.is_same(version.digests):
            changed[version.version] = _as_served_before(version, before)
    return replace(package, versions={**package.versions, **changed}) if changed else package


def _as_served_before(version: PackageVersion, known: KnownFile) -> PackageVersion:
    digests = known.digests
    members = {
        "integrity": f"{known.key.algorithm}-{b64encode(bytes.fromhex(known.key.hex)).decode()}"
    }
    if known.key.algorithm == "sha1":
        members = {"shasum": known.key.hex}
    return replace(
        version,
        digests=frozenset(f"{name}:{value}" for name, value in digests.items()),
        published_at=known.published_at,
        provenance=None,
        attestation=None,
        # Signatures, attestations and sizes are of upstream's own file.
        dist=msgspec.json.encode(members)[1:-1],
    )


def find_file(package: NpmPackage, file: str) -> PackageVersion | None:
    """The version whose tarball is `file`, the part of its URL after `/-/`; None if there is none.

    Lockfiles made without the proxy may have upstream's file name, which may begin with the scope.
    If upstream uses a name for several versions, it finds none of them, unless it is the
    `file_name` of one.
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


def encode_package(package: NpmPackage) -> bytes:
    """`package` for the document cache."""
    head = replace(package, versions={})
    return encode_versioned(_ENCODING, head, list(package.versions.values()))


def decode_package(encoded: bytes) -> NpmPackage:
    """The package that `encode_package` encoded. On EncodingUnknown, fetch the document again."""
    head, versions = decode_versioned(_ENCODING, encoded, NpmPackage, PackageVersion)
    return replace(head, versions={version.version: version for version in versions})


def is_empty_package(package: NpmPackage) -> bool:
    """True for a package without versions that was not unpublished, as far as upstream says."""
    return not package.versions and not package.is_unpublished


def release_package(package: NpmPackage) -> None:
    """Free the versions of a package that is no longer used, one by one."""
    while package.versions:
        package.versions.popitem()


WORDS_CHARS_MAX: Final = 200
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._]+")
_BLOCKED: Final = re.compile(r"blocked/[A-Za-z0-9][A-Za-z0-9._-]*/(?=[^/]+\Z)")


def words_of(reason: str) -> str:
    """A reason as a segment of a URL that needs no escapes: `too-new`."""
    return _NOT_PLAIN.sub("-", reason)[:WORDS_CHARS_MAX]


def blocked_folder(reason: str) -> str:
    """The folder in the address of a tarball that is blocked for `reason`: `blocked/too-new/`."""
    words = words_of(reason).lstrip("._-")
    return f"blocked/{words or 'policy'}/"


def without_folder(file: str) -> str:
    """`file` without the folder for blocked tarballs, which has no effect on the decision."""
    return _BLOCKED.sub("", file, count=1) if file.startswith("blocked/") else file
