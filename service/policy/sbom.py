"""Compares a software bill of materials (CycloneDX, in JSON) with the blocklist in force."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import unquote

import msgspec

from service.errors import Conflict, Invalid
from service.packages.ecosystems import Ecosystem
from service.packages.names import InvalidPackageName, canonical_name
from service.packages.release import Release
from service.policy.advisories import PackageAdvisories
from service.policy.evaluation import CompiledPolicy
from service.policy.model import NO_POLICY
from service.policy.repository import decode_advisories, find_in_force, load_advisories
from service.store.transaction import Transaction

SBOM_BYTES_MAX: Final = 64 * 2**20

_NO_POLICY: Final = CompiledPolicy(NO_POLICY)
_DIGESTS: Final = {"SHA-1": "sha1", "SHA-256": "sha256", "SHA-512": "sha512"}


class _Hash(msgspec.Struct):
    alg: str
    content: str


class _Component(msgspec.Struct):
    purl: str | None = None
    hashes: list[_Hash] = []
    components: list["_Component"] = []


class _Document(msgspec.Struct, tag_field="bomFormat", tag="CycloneDX"):
    components: list[_Component] = []


@dataclass(frozen=True, slots=True)
class Finding:
    """A component that the blocklist names, and by which advisories."""

    release: Release
    advisory_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result. `others` counts the components of ecosystems that have no blocklist."""

    compared: int
    others: int
    findings: tuple[Finding, ...]


def parse_sbom(content: bytes) -> tuple[list[Release], int]:
    """The releases that a bill of materials names, and how many other components it has.

    Raises Invalid.
    """
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"not a CycloneDX document in JSON: {error}") from error
    releases, others = [], 0
    waiting = document.components
    while waiting:
        component = waiting.pop()
        waiting.extend(component.components)
        release = _release(component)
        if release is None:
            others += 1
        else:
            releases.append(release)
    return sorted(releases, key=lambda release: (release.ecosystem, release.name)), others


def _release(component: _Component) -> Release | None:
    """The component's release, by its package URL; None if it is of another ecosystem."""
    if component.purl is None:
        return None
    # `pkg:npm/%40scope/name@1.0?qualifiers#subpath`, see github.com/package-url/purl-spec
    kind, _, rest = component.purl.removeprefix("pkg:").partition("/")
    name, _, version = rest.partition("#")[0].partition("?")[0].rpartition("@")
    if kind.lower() not in set(Ecosystem) or not name:
        return None
    ecosystem = Ecosystem(kind.lower())
    try:
        canonical = canonical_name(ecosystem, unquote(name))
    except InvalidPackageName as error:
        raise Invalid(f"{component.purl[:200]}: {error}") from error
    digests = frozenset(
        f"{_DIGESTS[entry.alg]}:{entry.content.lower()}"
        for entry in component.hashes
        if entry.alg in _DIGESTS
    )
    return Release(ecosystem, canonical, unquote(version), digests=digests)


def compare_sbom(transaction: Transaction, content: bytes, now: datetime) -> Comparison:
    """Which components of a bill of materials the blocklist names. Raises Invalid and Conflict."""
    releases, others = parse_sbom(content)
    # The generation is that of all organisations: no policy has a part in the comparison.
    generation = find_in_force(transaction, tenant_id="").generation
    if generation == 0:
        # A comparison with nothing must not look like one without findings.
        raise Conflict("the blocklist is empty: import an archive of OSV records first")
    advised = [
        Finding(release, _advisory_ids(transaction, generation, release, now))
        for release in releases
    ]
    findings = tuple(finding for finding in advised if finding.advisory_ids)
    return Comparison(len(releases), others, findings)


def _advisory_ids(
    transaction: Transaction, generation: int, release: Release, now: datetime
) -> tuple[str, ...]:
    stored = load_advisories(transaction, generation, release.ecosystem, release.name)
    return tuple(
        advisory.advisory_id
        for advisory in decode_advisories(release.ecosystem, stored)
        if _NO_POLICY.on(release.ecosystem, release.name, PackageAdvisories([advisory]))
        .decide(release, now)
        .is_blocked
    )
