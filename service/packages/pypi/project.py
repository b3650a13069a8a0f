"""A project of a Python index, in the compact form that is cached and that decisions use."""

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
from service.packages.pypi.filenames import DistributionKind

FILES_MAX: Final = 200_000

_ENCODING: Final = b"pypi-project/2\n"
"""To be increased when the classes below change: cached bytes of older forms are dropped."""

METADATA_SUFFIX: Final = ".metadata"


class ProjectFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One offered file.

    `version` is normalised (PEP 440). `path` is upstream's, verbatim, on the origin with the key
    `origin`; its last component, unquoted, is `filename`. `hashes` has lower-case hexadecimal
    digests by algorithm, and may be empty. `yanked` is the reason, or True without a reason.
    `metadata_hashes` is None if upstream does not offer the wheel's metadata by itself. One that
    `was_served_before` replaces another file, of which upstream says all that is known.
    """

    filename: str
    version: str
    kind: DistributionKind
    origin: str
    path: str
    hashes: dict[str, str]
    requires_python: str | None = None
    size: int | None = None
    published_at: datetime | None = None
    yanked: bool | str = False
    metadata_hashes: dict[str, str] | None = None
    provenance: str | None = None
    was_served_before: bool = False

    def release(self, project: str) -> Release:
        """What policy decides on."""
        level = Provenance.NONE if self.provenance is None else Provenance.PROVENANCE
        return Release(
            Ecosystem.PYPI,
            project,
            self.version,
            self.published_at,
            self.digests,
            is_yanked=self.yanked is not False,
            provenance=None if self.was_served_before else level,
            attestation=self.provenance,
        )

    @property
    def digests(self) -> frozenset[str]:
        """The digests as `algorithm:hex`."""
        return frozenset(f"{algorithm}:{digest}" for algorithm, digest in self.hashes.items())


class PypiProject(msgspec.Struct, frozen=True, array_like=True):
    """What one upstream says about one project.

    `name` is normalised. No two files have the same name. `api_minor` is the minor version of
    upstream's repository API; `tracks` and `alternate_locations` are those of PEP 708, `status` and
    `status_reason` those of PEP 792. `dropped` counts, by reason, upstream's files that are not
    offered.
    """

    name: str
    files: list[ProjectFile]
    api_minor: int = 0
    tracks: tuple[str, ...] = ()
    alternate_locations: tuple[str, ...] = ()
    status: str | None = None
    status_reason: str | None = None
    dropped: Mapping[str, int] = {}


def releases_of(project: PypiProject) -> Iterator[Release]:
    """What policy decides on, file by file."""
    return (file.release(project.name) for file in project.files)


def as_served_before(file: ProjectFile, known: KnownFile) -> ProjectFile:
    """The file that was served under the name of `file` before, which is another one.

    What upstream says besides is about its own file.
    """
    return replace(
        file,
        version=known.version,
        hashes=known.digests,
        size=None,
        published_at=known.published_at,
        metadata_hashes=None,
        provenance=None,
        was_served_before=True,
    )


def with_known(project: PypiProject, known: Mapping[str, KnownFile]) -> PypiProject:
    """`project` with the files that were served before in place of others of their names."""
    changed = {
        file.filename
        for file in project.files
        if file.filename in known and not known[file.filename].is_same(file.digests)
    }
    if not changed:
        return project
    files = [
        as_served_before(file, known[file.filename]) if file.filename in changed else file
        for file in project.files
    ]
    return replace(project, files=files)


def find_file(project: PypiProject, origin: str, path: str) -> tuple[ProjectFile | None, bool]:
    """The file that is offered under the name in `path`; and if it is there, on `origin`.

    `path` begins with a slash; it may be verbatim, or unquoted as a router passes it.
    """
    filename = unquote(path.rpartition("/")[2])
    for file in project.files:
        if file.filename == filename:
            return file, file.origin == origin and path in (file.path, unquote(file.path))
    return None, False


def encode_project(project: PypiProject) -> bytes:
    """`project` for the document cache."""
    return encode_versioned(_ENCODING, replace(project, files=[]), project.files)


def decode_project(encoded: bytes) -> PypiProject:
    """The project that `encode_project` encoded. On EncodingUnknown, fetch the document again."""
    head, files = decode_versioned(_ENCODING, encoded, PypiProject, ProjectFile)
    return replace(head, files=files)


def is_empty_project(project: PypiProject) -> bool:
    """True for a project without files that is not quarantined: then an index lists none."""
    return not project.files and project.status != "quarantined"


def release_project(project: PypiProject) -> None:
    """Free the files of a project that is no longer used, one by one."""
    while project.files:
        project.files.pop()
