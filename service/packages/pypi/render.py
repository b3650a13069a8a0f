"""Pages of the simple repository API as the proxy serves them.

Blocked files are marked, not hidden: a file in `marks` is served as yanked, with the decision's
reason (PEP 592). So ranges select another version, and the request for a pinned one is recorded.
Files are marked rather than releases: a wheel added to an old release is as young as a new release.

A file is at `<base>/files/<origin key>/<path>`, with upstream's path verbatim. So files of several
origins can be told apart, and a lockfile shows which origin it was.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from html import escape
from typing import Final

import msgspec
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from service.packages.proxy.documents import chunked
from service.packages.pypi.filenames import DistributionKind
from service.packages.pypi.listing import MINOR_MAX, Meta, ProjectStatus
from service.packages.pypi.project import ProjectFile, PypiProject


class _FileEntry(msgspec.Struct, rename="kebab", omit_defaults=True, gc=False):
    filename: str
    url: str
    hashes: dict[str, str]
    yanked: bool | str
    requires_python: str | None = None
    size: int | None = None
    upload_time: datetime | None = None
    core_metadata: bool | dict[str, str] | None = None
    provenance: str | None = None


class _RenderedPage(msgspec.Struct, rename="kebab", omit_defaults=True):
    meta: Meta
    name: str
    versions: list[str]
    alternate_locations: tuple[str, ...] = ()
    project_status: ProjectStatus | None = None


_ENCODER: Final = msgspec.json.Encoder()
_HTML_HASHES: Final = ("sha256", "sha512", "sha384", "sha224", "sha1", "md5")


def render_json(project: PypiProject, base: str, marks: Mapping[str, str]) -> Iterator[bytes]:
    """The project's page in JSON (PEP 691, 700, 708, 714, 740, 792), in parts.

    `base` is the URL of the proxied index, without a trailing slash. `marks` has the reason by
    file name.
    """
    page = _RenderedPage(
        meta=Meta(_api_version(project), project.tracks or None),
        name=project.name,
        versions=list(dict.fromkeys(file.version for file in project.files)),
        alternate_locations=project.alternate_locations,
        project_status=ProjectStatus(project.status, project.status_reason)
        if project.status
        else None,
    )
    yield _ENCODER.encode(page)[:-1] + b',"files":['
    separator = b""
    for chunk in chunked(project.files):
        yield separator + _ENCODER.encode([_file(file, base, marks) for file in chunk])[1:-1]
        separator = b","
    yield b"]}"


def _file(file: ProjectFile, base: str, marks: Mapping[str, str]) -> _FileEntry:
    return _FileEntry(
        file.filename,
        f"{base}/files/{file.origin}{file.path}",
        file.hashes,
        _yanked(file, marks),
        file.requires_python,
        file.size,
        file.published_at,
        _core_metadata(file),
        file.provenance,
    )


def render_html(project: PypiProject, base: str, marks: Mapping[str, str]) -> Iterator[bytes]:
    """The project's page in HTML (PEP 503, 592, 658, 708, 714, 740, 792); see `render_json`."""
    title = escape(f"Links for {project.name}")
    meta = "".join(
        f'<meta name="pypi:{name}" content="{escape(content)}">\n'
        for name, content in _meta(project)
    )
    base = escape(base)
    yield (
        f'<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n{meta}'
        f"<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n"
    ).encode()
    for chunk in chunked(project.files):
        yield "".join([_link(file, base, _yanked(file, marks)) for file in chunk]).encode()
    yield b"</body>\n</html>\n"


def _link(file: ProjectFile, base: str, yanked: bool | str) -> str:
    # Names, paths, keys and digests need no escapes: they were checked when the page was read.
    digest = _digest(file.hashes)
    attributes = ""
    if file.requires_python is not None:
        attributes += f' data-requires-python="{_escape(file.requires_python)}"'
    if yanked is not False:
        attributes += f' data-yanked="{"" if yanked is True else _escape(yanked)}"'
    metadata = _core_metadata(file)
    if metadata is not None:
        value = (_digest(metadata) if isinstance(metadata, dict) else "") or "true"
        # pip 22.3 to 23.1 know only the older name.
        attributes += f' data-core-metadata="{value}" data-dist-info-metadata="{value}"'
    if file.provenance is not None:
        attributes += f' data-provenance="{_escape(file.provenance)}"'
    url = f"{base}/files/{file.origin}{file.path}{digest and '#'}{digest}"
    return f'<a href="{url}"{attributes}>{file.filename}</a><br>\n'


def _digest(hashes: Mapping[str, str]) -> str:
    """The most widely supported digest, as `algorithm=hex`; empty if there is none."""
    for algorithm in _HTML_HASHES:
        if algorithm in hashes:
            return f"{algorithm}={hashes[algorithm]}"
    return ""


@lru_cache(maxsize=1024)
def _escape(text: str) -> str:
    """`text` as an attribute's value. Cached: a project's files have few different ones."""
    return escape(text)


def _yanked(file: ProjectFile, marks: Mapping[str, str]) -> bool | str:
    """The reason why the file is marked, else upstream's own."""
    reason = marks.get(file.filename)
    return file.yanked if reason is None else reason or True


def _core_metadata(file: ProjectFile) -> bool | dict[str, str] | None:
    """The announced metadata of a wheel, which we extract if upstream does not offer it."""
    if file.kind is not DistributionKind.WHEEL:
        return None
    return file.metadata_hashes or True


def _api_version(project: PypiProject) -> str:
    return f"1.{min(project.api_minor, MINOR_MAX)}"


def _meta(project: PypiProject) -> list[tuple[str, str]]:
    """The page's meta elements: PEP 629, 708 and 792."""
    meta = [("repository-version", _api_version(project))]
    meta += [("tracks", url) for url in project.tracks]
    meta += [("alternate-locations", url) for url in project.alternate_locations]
    if project.status is not None:
        meta.append(("project-status", project.status))
        if project.status_reason is not None:
            meta.append(("project-status-reason", project.status_reason))
    return meta


class PageFormat(StrEnum):
    """A form of a page; the value is the Content-Type of the response."""

    JSON = "application/vnd.pypi.simple.v1+json"
    HTML = "application/vnd.pypi.simple.v1+html"
    PLAIN_HTML = "text/html"

    @property
    def is_json(self) -> bool:
        """Whether the page is in JSON; both other forms are the same HTML."""
        return self is PageFormat.JSON


_CACHED_CHARS_MAX: Final = 512

_OFFERED: Final = {
    "text/html": PageFormat.PLAIN_HTML,
    "application/vnd.pypi.simple.v1+html": PageFormat.HTML,
    "application/vnd.pypi.simple.latest+html": PageFormat.HTML,
    "application/vnd.pypi.simple.v1+json": PageFormat.JSON,
    "application/vnd.pypi.simple.latest+json": PageFormat.JSON,
}
"""By media type. The answer to `latest` names the actual version (PEP 691)."""


def negotiate(accept: str | None) -> PageFormat | None:
    """The form to answer with, by the Accept header; None if no form is acceptable (406).

    Without a preference it is `text/html`, as it was before there was a choice.
    """
    # The cache is keyed by what clients send: long headers must not fill memory.
    if accept is None or len(accept) <= _CACHED_CHARS_MAX:
        return _negotiate_known(accept)
    return _negotiate(accept)


def _negotiate(accept: str | None) -> PageFormat | None:
    preferences = parse_accept_header(accept or "*/*", MIMEAccept)
    if not preferences:
        return PageFormat.PLAIN_HTML
    best = preferences.best_match(list(_OFFERED))
    return None if best is None else _OFFERED[best]


# Each client always sends the same header; parsing it takes a tenth of a small request.
_negotiate_known = lru_cache(maxsize=256)(_negotiate)
