"""What each ecosystem declares about itself: names, versions, its registry's documents, clients."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar

from packaging.version import Version as PypiVersion

from analytics.model.ecosystems import Ecosystem
from service.packages.clients import PackageManager, ProxyAddress
from service.packages.intervals import Interval
from service.packages.proxy.documents import Codec
from service.packages.proxy.origins import Origins

_Value = TypeVar("_Value")

ComparableVersion = PypiVersion | tuple[Any, ...]
"""A version that can be hashed, compared and sorted: a tuple unless PyPI has a class for it."""


class InvalidPackageName(ValueError):
    """The text is not a name, or not a pattern of names, in its ecosystem."""


class InvalidVersion(ValueError):
    """The text is not a version in its ecosystem."""


class InvalidRange(ValueError):
    """The text is not a range of versions in its ecosystem."""


class Provenance(IntEnum):
    """What a registry says about where a file was built; a higher one is stronger."""

    NONE = 0
    PROVENANCE = 1
    """An attestation says from which source: npm's, or that of PEP 740."""
    TRUSTED_PUBLISHER = 2
    """And it was published by that build itself, without a password or token."""


@dataclass(frozen=True, slots=True)
class Release:
    """One file, or a whole version, of a package.

    `name` is canonical, `version` as the registry spells it. `published_at` is None if the registry
    does not say. `digests` are `sha256:<hex>`, `sha512:<hex>` or `sha1:<hex>`, in lower case.
    `is_yanked` is set for what the registry lists, and clients choose only if it is pinned.
    `provenance` is None if it is not known. `attestation` is the URL of its attestations. Since
    `withdrawn_at` its registry lists it no more.
    """

    ecosystem: Ecosystem
    name: str
    version: str
    published_at: datetime | None = None
    digests: frozenset[str] = frozenset()
    is_yanked: bool = False
    provenance: Provenance | None = None
    attestation: str | None = None
    withdrawn_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How people write packages of an ecosystem, besides `name@version`.

    Patterns have the group `name`, and `version` where there may be one: a range or a version.
    """

    names: Callable[[str], Iterable[str]]
    """The names that a text may mean, the likeliest first. Raises InvalidPackageName."""

    versions: Callable[[str], Iterable[str]]
    """The spellings of a version, the likeliest first. Raises InvalidVersion."""

    page: re.Pattern[str]
    """An address of a package at its registry, without the scheme; `file_version` as `version`."""

    file: Callable[[str], tuple[str, str] | None]
    """The name and version that the name of a file tells; None if it tells none."""

    requirement: re.Pattern[str] | None = None
    """A line of its requirement files, if no other ecosystem has such lines."""

    aliases: tuple[str, ...] = ()
    """Other names of the ecosystem, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EcosystemFacts(Generic[_Value]):
    """What there is to know about an ecosystem, apart from the routes of its registry's API.

    `_Value` is what one of its registry's documents says about a package.
    """

    ecosystem: Ecosystem
    """Its name in rows, policies, package URLs and addresses."""

    label: str
    """Its name for people."""

    osv_name: str
    """Its name in OSV's records, in lower case."""

    canonical_name: Callable[[str], str]
    """The one spelling of a name. Raises InvalidPackageName."""

    piece: re.Pattern[str]
    """What a glob of names may have between its wildcards."""

    folded: Callable[[str], str]
    """The spelling of a glob in which it matches canonical names."""

    parse_version: Callable[[str], ComparableVersion]
    """Raises InvalidVersion."""

    parse_range: Callable[[str], Iterable[Interval]]
    """The versions in a range. Raises InvalidRange."""

    specifier: re.Pattern[str]
    """A `name` with its `version`, as users of its clients write it."""

    example: str
    """A specifier."""

    notation: Notation

    codec: Callable[[Origins], Codec[_Value]]
    """How its registry's documents are requested, parsed and stored."""

    publisher: Callable[[Any], str]
    """Who published a file, in the JSON of its attestations. Raises LookupError, TypeError."""

    attested: Callable[[bytes], list[str]]
    """What its attestations prove to be of this publisher."""

    subjects: Callable[[Release], Iterable[str]] = attrgetter("digests")
    """What of that is this file."""

    releases: Callable[[_Value], Iterable[Release]]
    """What a document lists, file by file."""

    address: Callable[[ProxyAddress], str]
    """Where its clients find its registry in the proxy."""

    clients: tuple[PackageManager, ...]
