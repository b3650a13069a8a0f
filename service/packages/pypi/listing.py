"""Turns each link of an upstream's page into a file to offer, or a reason not to offer it.

The page is JSON here (PEP 691, 700, 708, 714, 740 and 792); `html` reads the older form.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final
from urllib.parse import unquote

import msgspec
from packaging.utils import canonicalize_name

from service.packages.proxy.documents import (
    DocumentInvalid,
    EntryDropped,
    decode_untrusted,
    parse_hashes,
    parse_instant,
    refuse_oversized,
)
from service.packages.proxy.origins import Origins, bounded_url
from service.packages.pypi.filenames import DistributionKind, parse_filename
from service.packages.pypi.project import FILES_MAX, ProjectFile, PypiProject

REASON_CHARS_MAX: Final = 1024

STATUSES: Final = ("active", "archived", "quarantined", "deprecated")

OF_ANOTHER_PROJECT: Final = "file is of another project"
_NO_DISTRIBUTION: Final = "file name is not of a wheel or sdist"
_LISTED_TWICE: Final = "file name is listed twice"
_NEVER_OFFERED: Final = frozenset({OF_ANOTHER_PROJECT, _NO_DISTRIBUTION, _LISTED_TWICE})

MINOR_MAX: Final = 4
"""The newest minor version whose additions are passed on: 1.4 has project status (PEP 792)."""

_SIZE_MAX: Final = 1 << 53
_URLS_MAX: Final = 100


class Link(msgspec.Struct, rename="kebab", gc=False):
    """One file as an upstream describes it, unchecked: an object of PEP 691's `files`."""

    url: str
    filename: str | None = None
    hashes: dict[str, str] | None = None
    requires_python: str | None = None
    size: int | None = None
    upload_time: str | None = None
    yanked: bool | str | None = None
    core_metadata: bool | dict[str, str] | None = None
    dist_info_metadata: bool | dict[str, str] | None = None
    provenance: str | None = None


class Listing:
    """Collects the files of one page.

    `name` is the project's normalised name, `page_url` the base of relative links.
    """

    def __init__(self, name: str, page_url: str, origins: Origins) -> None:
        self.dropped: Counter[str] = Counter()
        self._name = name
        self._page_url = page_url
        self._origins = origins
        self._files: dict[str, ProjectFile] = {}

    def project(
        self,
        minor: int,
        tracks: Iterable[str],
        locations: Iterable[str],
        status: str | None,
        reason: str | None,
    ) -> PypiProject:
        """The project with the files that were added, and what else the page says (unchecked)."""
        is_known = status in STATUSES
        return PypiProject(
            name=self._name,
            files=list(self._files.values()),
            api_minor=minor,
            tracks=_bounded_urls(tracks),
            alternate_locations=_bounded_urls(locations),
            status=status if is_known else None,
            status_reason=reason[:REASON_CHARS_MAX] if is_known and reason else None,
            dropped=dict(self.dropped),
        )

    def add(self, link: Link) -> None:
        """Offer the file of `link`, or count why it is not offered.

        Raises DocumentInvalid for more than FILES_MAX links.
        """
        # Dropped links count, too: each of them costs the same work.
        if len(self._files) + self.dropped.total() >= FILES_MAX:
            raise DocumentInvalid("page lists too many files")
        try:
            file = self._parse(link)
        except EntryDropped as dropped:
            self.drop(str(dropped))
            return
        self._files[file.filename] = file

    def drop(self, reason: str) -> None:
        """Count a link that is not offered, for this reason."""
        self.dropped[reason] += 1

    def _parse(self, link: Link) -> ProjectFile:
        origin, path, fragment = self._origins.locate(link.url, self._page_url)
        # Some clients take the name from the URL, others from the listing: both must agree.
        filename = path.rpartition("/")[2]
        if "%" in filename:
            filename = unquote(filename)
        if link.filename is not None and link.filename != filename:
            raise EntryDropped("file name differs from its URL")
        distribution = parse_filename(filename)
        if distribution is None:
            raise EntryDropped(_NO_DISTRIBUTION)
        if distribution.project != self._name:
            raise EntryDropped(OF_ANOTHER_PROJECT)
        # The first one stays: a client could take either, but only one of them would be decided on.
        if filename in self._files:
            raise EntryDropped(_LISTED_TWICE)
        return ProjectFile(
            filename=filename,
            version=distribution.version,
            kind=distribution.kind,
            origin=origin,
            path=path,
            hashes=_merged_hashes(link.hashes, fragment),
            requires_python=_short(link.requires_python),
            size=link.size if link.size is not None and 0 <= link.size < _SIZE_MAX else None,
            published_at=parse_instant(link.upload_time),
            yanked=_yanked(link.yanked),
            metadata_hashes=_metadata_hashes(link)
            if distribution.kind is DistributionKind.WHEEL
            else None,
            provenance=bounded_url(link.provenance),
        )


def listed_files(project: PypiProject) -> frozenset[str] | None:
    """The names of all files; None if one was dropped that may have been offered before."""
    names = frozenset(file.filename for file in project.files)
    return names if project.dropped.keys() <= _NEVER_OFFERED else None


def _bounded_urls(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(url for url in urls if bounded_url(url) is not None)[:_URLS_MAX]


def _merged_hashes(hashes: Mapping[str, str] | None, fragment: str) -> dict[str, str]:
    """`hashes` and the digest in a URL's fragment (PEP 503). Raises EntryDropped if they differ."""
    merged = parse_hashes(hashes) if hashes else {}
    if fragment:
        algorithm, _, digest = fragment.partition("=")
        for known, value in parse_hashes({algorithm: digest}).items():
            if merged.setdefault(known, value) != value:
                raise EntryDropped("digests differ")
    return merged


def _short(text: str | None) -> str | None:
    """`text`, None if empty. Raises EntryDropped if it is too long to be a version specifier."""
    if text and len(text) > REASON_CHARS_MAX:
        raise EntryDropped("requires-python is too long")
    return text or None


def _yanked(yanked: bool | str | None) -> bool | str:
    """The reason, cut to REASON_CHARS_MAX, or True without one: in HTML, an empty text."""
    if isinstance(yanked, str):
        return yanked[:REASON_CHARS_MAX] or True
    return bool(yanked)


def _metadata_hashes(link: Link) -> dict[str, str] | None:
    """Digests of the metadata that upstream offers, perhaps none; None if it offers no metadata.

    PEP 714: the older name counts only if the newer one is absent.
    """
    offered = link.dist_info_metadata if link.core_metadata is None else link.core_metadata
    if isinstance(offered, dict):
        return parse_hashes(offered)
    return {} if offered else None


_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


def parse_minor(version: str) -> int:
    """The minor number of a version such as `1.1`. Raises DocumentInvalid unless it is 1.x."""
    match = _VERSION.fullmatch(version)
    if match is None or int(match[1]) != 1:
        raise DocumentInvalid("page is not of version 1 of the repository API")
    return int(match[2])


class Meta(msgspec.Struct, rename="kebab", omit_defaults=True):
    """A page's `meta`."""

    api_version: str
    tracks: Sequence[str] | None = None


class ProjectStatus(msgspec.Struct, omit_defaults=True):
    """A page's `project-status` (PEP 792)."""

    status: str | None = None
    reason: str | None = None


class _Page(msgspec.Struct, rename="kebab"):
    meta: Meta
    name: str
    files: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=FILES_MAX)]
    alternate_locations: list[str] | None = None
    project_status: ProjectStatus | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)

_LINK: Final = msgspec.json.Decoder(Link)


def parse_json(body: bytes, name: str, page_url: str, origins: Origins) -> PypiProject:
    """The project `name` (normalised), from the page fetched from `page_url`.

    Invalid entries are dropped and counted; the others are kept. Raises DocumentInvalid if the
    page is about another project, or not of version 1 of the API.
    """
    refuse_oversized(body)
    page = decode_untrusted(_PAGE.decode, body)
    minor = parse_minor(page.meta.api_version)
    if canonicalize_name(page.name) != name:
        raise DocumentInvalid("page is of another project")
    listing = Listing(name, page_url, origins)
    for raw in page.files:
        try:
            link = _LINK.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            listing.drop("file is described wrongly")
            continue
        listing.add(link)
    stated = page.project_status or ProjectStatus()
    return listing.project(
        minor,
        page.meta.tracks or (),
        page.alternate_locations or (),
        stated.status,
        stated.reason,
    )
