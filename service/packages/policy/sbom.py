"""Compares a software bill of materials (CycloneDX, in JSON) with the blocklist in force."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Final, Literal
from urllib.parse import unquote

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Conflict, Invalid
from service.packages.ecosystem import InvalidPackageName, Release
from service.packages.names import canonical_name
from service.packages.policy.advisories import Advisory, PackageAdvisories
from service.packages.policy.evaluation import CompiledPolicy
from service.packages.policy.model import NO_POLICY
from service.packages.policy.repository import decode_advisories, find_in_force, load_advisories
from service.store.transaction import Transaction
from service.web.models import Answer

BLOCKLIST_EMPTY: Final = Conflict.of(
    "the blocklist is empty: import an archive of OSV records first"
)

SBOM_BYTES_MAX: Final = 64 * 2**20

_NO_POLICY: Final = CompiledPolicy(NO_POLICY)
_SCHEME: Final = re.compile(r"\Apkg:/*", re.IGNORECASE)
_BY_PACKAGE: Final = attrgetter("ecosystem", "name")
_DIGESTS: Final = {"SHA-1": "sha1", "SHA-256": "sha256", "SHA-512": "sha512"}


class _Hash(msgspec.Struct):
    alg: str
    content: str


class _Component(msgspec.Struct):
    purl: str | None = None
    hashes: list[_Hash] = []
    components: list["_Component"] = []


class _Metadata(msgspec.Struct):
    component: _Component | None = None


class _Document(msgspec.Struct, rename={"bom_format": "bomFormat"}):
    bom_format: Literal["CycloneDX"]  # required: another format has no components either
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    components: list[_Component] = []


class SbomFinding(Answer):
    """A package on the blocklist, and the advisories; of a package without a version, all on it."""

    ecosystem: str
    package: str
    version: str
    advisories: list[str]


class SbomComparison(Answer):
    """The packages of a bill of materials that the blocklist names.

    `others` are the components that were not compared: those of other ecosystems.
    """

    compared: int
    others: int
    findings: list[SbomFinding]


def parse_sbom(content: bytes) -> tuple[list[Release], int]:
    """The releases that a bill of materials names, and how many other components it has.

    Not the product that it describes (`metadata.component`), but what that contains.

    Raises Invalid.
    """
    try:
        document = msgspec.json.decode(content.removeprefix(BOM_UTF8), type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"not a CycloneDX document in JSON: {error}") from error
    releases, others = [], 0
    product = document.metadata.component
    waiting = document.components + ([] if product is None else product.components)
    while waiting:
        component = waiting.pop()
        waiting.extend(component.components)
        release = _release(component)
        if release is None:
            others += 1
        else:
            releases.append(release)
    return sorted(releases, key=_BY_PACKAGE), others


def _release(component: _Component) -> Release | None:
    """The component's release, by its package URL; None if it is of another ecosystem.

    The version of a URL without one is empty.
    """
    if component.purl is None:
        return None
    # `pkg:npm/%40scope/name@1.0?qualifiers#subpath`, see github.com/package-url/purl-spec
    kind, _, rest = _SCHEME.sub("", component.purl, count=1).partition("/")
    path = rest.partition("#")[0].partition("?")[0].strip("/")
    name, _, version = path.rpartition("@")
    if not name:  # no version; the `@` of a scope may be unescaped
        name, version = path, ""
    if kind.lower() not in set(Ecosystem):
        return None
    ecosystem = Ecosystem(kind.lower())
    try:
        canonical = canonical_name(ecosystem, unquote(name.strip("/")))
    except InvalidPackageName as error:
        raise Invalid(f"{component.purl[:200]}: {error}") from error
    digests = frozenset(
        f"{_DIGESTS[entry.alg]}:{entry.content.lower()}"
        for entry in component.hashes
        if entry.alg in _DIGESTS
    )
    return Release(ecosystem, canonical, unquote(version), digests=digests)


def compare_sbom(transaction: Transaction, content: bytes, now: datetime) -> SbomComparison:
    """Which components of a bill the blocklist names. Raises Invalid, BLOCKLIST_EMPTY."""
    releases, others = parse_sbom(content)
    # The generation is that of all organisations: no policy has a part in the comparison.
    generation = find_in_force(transaction, tenant_id="").generation
    if generation == 0:
        # A comparison with nothing must not look like one without findings.
        raise BLOCKLIST_EMPTY
    findings = list(_find_advised(transaction, generation, releases, now))
    return SbomComparison(compared=len(releases), others=others, findings=findings)


def _find_advised(
    transaction: Transaction, generation: int, releases: Iterable[Release], now: datetime
) -> Iterator[SbomFinding]:
    """The findings; `releases` are sorted by package."""
    for (ecosystem, name), of_package in groupby(releases, _BY_PACKAGE):
        stored = load_advisories(transaction, generation, ecosystem, name)
        advisories = decode_advisories(ecosystem, stored)
        for release in of_package:
            if ids := list(_ids_on(release, advisories, now)):
                yield SbomFinding(
                    ecosystem=str(ecosystem), package=name, version=release.version, advisories=ids
                )


def _ids_on(release: Release, advisories: Iterable[Advisory], now: datetime) -> Iterator[str]:
    """The advisories that name the release. Of a package without a version, each may."""
    for advisory in advisories:
        policy = _NO_POLICY.on(release.ecosystem, release.name, PackageAdvisories([advisory]))
        if not release.version or policy.decide(release, now).is_blocked:
            yield advisory.advisory_id
