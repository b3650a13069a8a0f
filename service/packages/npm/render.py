"""Documents of the npm registry API as the proxy serves them.

Blocked versions are marked, not hidden: a version in `marks` is served as deprecated, with the
decision's reason. So ranges select another version, and the request for a pinned one is recorded.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from service.packages.npm.document import NpmPackage, PackageVersion, blocked_folder
from service.packages.npm.tags import move_tags

ABBREVIATED: Final = "application/vnd.npm.install-v1+json"
FULL: Final = "application/json"

PART_BYTES: Final = 256 * 1024
"""About how many bytes are joined at once."""

_json = msgspec.json.encode


def negotiate(accept: str | None) -> str:
    """The Content-Type to answer with: ABBREVIATED if the client names it first, else FULL.

    Registries never answer 406: tools ask for all kinds of types and expect the full document.
    """
    preferences = parse_accept_header(accept, MIMEAccept)
    qualities = {str(name).lower(): quality for name, quality in preferences}
    quality = qualities.get(ABBREVIATED, 0.0)
    return ABBREVIATED if quality > 0 and quality >= qualities.get(FULL, 0.0) else FULL


def render_abbreviated(package: NpmPackage, base: str, marks: Mapping[str, str]) -> Iterator[bytes]:
    """What installs need, and the publication instants that npm's own abbreviated form lacks.

    In parts of about PART_BYTES. `base` is the URL of the proxied registry, without a trailing
    slash. `marks` has the reason by version.
    """
    modified = b"" if package.modified is None else b',"modified":' + _json(package.modified)
    return _render(package, base, marks, modified, is_full=False)


def render_full(package: NpmPackage, base: str, marks: Mapping[str, str]) -> Iterator[bytes]:
    """The full document, with everything that upstream says; see `render_abbreviated`."""
    extra = b"," + package.extra if package.extra else b""
    return _render(package, base, marks, extra, is_full=True)


def render_manifest(
    package: NpmPackage, base: str, marks: Mapping[str, str], version_or_tag: str
) -> bytes | None:
    """The full object of one version; None if there is no such version or tag."""
    version = move_tags(package, marks).get(version_or_tag, version_or_tag)
    if version not in package.versions:
        return None
    tarballs = _Tarballs(package, base)
    return b"".join(_version(package.versions[version], tarballs, marks, is_full=True))


def _render(
    package: NpmPackage, base: str, marks: Mapping[str, str], extra: bytes, *, is_full: bool
) -> Iterator[bytes]:
    tarballs = _Tarballs(package, base)
    parts = [b'{"name":', _json(package.name)]
    parts += [b',"dist-tags":', _json(move_tags(package, marks)), b',"versions":']
    separator, size = b"{", 0
    for version in package.versions.values():
        parts += (separator, b'"', version.version.encode(), b'":')
        parts += _version(version, tarballs, marks, is_full=is_full)
        separator = b","
        size += len(version.install) + len(version.extra)
        if size > PART_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    parts += (b"}" if package.versions else b"{}", b',"time":', package.time, extra, b"}")
    yield b"".join(parts)


class _Tarballs:
    """The member `tarball` of a package's versions, up to the point where the version follows."""

    def __init__(self, package: NpmPackage, base: str) -> None:
        name = quote(package.name, safe="@/")
        self._folder, self._name = f"{base}/{name}/-/", name.rpartition("/")[2]
        self._usual = self._member("")

    def of(self, reason: str | None) -> bytes:
        """The member for a version that is blocked for `reason`, or that is not blocked (None).

        The address has the reason, because pnpm prints nothing else of a failed download.
        """
        return self._usual if reason is None else self._member(blocked_folder(reason))

    def _member(self, folder: str) -> bytes:
        return b'"tarball":' + _json(f"{self._folder}{folder}{self._name}-")[:-1]


def _version(
    version: PackageVersion, tarballs: _Tarballs, marks: Mapping[str, str], *, is_full: bool
) -> Iterator[bytes]:
    """The object of one version, in parts.

    No character of a version needs an escape in JSON or in a URL.
    """
    yield b"{"
    yield version.install
    if is_full and version.extra:
        yield b","
        yield version.extra
    reason = marks.get(version.version)
    deprecated = version.deprecated if reason is None else reason or True
    if deprecated is not False:
        yield b',"deprecated":'
        yield _json(deprecated)
    yield b',"dist":{'
    yield tarballs.of(reason)
    yield version.version.encode()
    yield b'.tgz"'
    if version.dist:
        yield b","
        yield version.dist
    yield b"}}"
