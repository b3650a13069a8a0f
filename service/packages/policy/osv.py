"""Parses OSV records (OSV schema 1.x): the affected packages, and what is said about each."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import InvalidPackageName
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.names import canonical_name
from service.packages.policy.advisories import Advisory, AdvisorySpec, Boundary, UnreadableRange

ADVISORY_ID_MAX: Final = 200
VERSIONS_MAX: Final = 50_000
"""Listed versions of one package in one record."""
RANGES_MAX: Final = 1_000
EVENTS_MAX: Final = 10_000
"""Events of all ranges of one package in one record: each is compared with each release."""
DIGESTS_MAX: Final = 10_000
NAMES_MAX: Final = 50
_DEPTH_MAX: Final = 8
"""How deeply digests may be nested in the members that a database adds to a record."""

_BY_OSV_NAME: Final = {facts.osv_name: facts.ecosystem for facts in ECOSYSTEMS.values()}
_ADVISORY_ID: Final = re.compile(r"[\x21-\x7e]+")
_KINDS: Final = ("introduced", "fixed", "last_affected", "limit")
_ORDERED_RANGES: Final = frozenset({"SEMVER", "ECOSYSTEM"})
"""The types of ranges that are about releases; GIT ranges are about commits."""
_HEX_LENGTHS: Final = {"sha1": 40, "sha256": 64, "sha512": 128}
_HEX: Final = re.compile(r"[0-9a-f]+")
_INTEGRITY: Final = re.compile(r"(sha1|sha256|sha512)-([A-Za-z0-9+/]+={0,2})")


class UnreadableRecord(ValueError):
    """The bytes are not a record of OSV's schema, or the record cannot be applied.

    `advisory_id` is the record's id, if at least that can be read.
    """

    advisory_id: str | None = None


class _Package(msgspec.Struct):
    ecosystem: str
    name: str


class _Range(msgspec.Struct):
    type: str
    events: list[dict[str, str]] = []


class _Affected(msgspec.Struct):
    package: _Package | None = None
    ranges: list[_Range] | None = None
    versions: list[str] | None = None
    database_specific: Any = None
    ecosystem_specific: Any = None


class _OsvRecord(msgspec.Struct):
    id: str
    withdrawn: str | None = None
    affected: list[_Affected] | None = None
    modified: Any = None
    aliases: Any = None


class _Identified(msgspec.Struct):
    id: str


_DECODER: Final = msgspec.json.Decoder(_OsvRecord)
_ID_DECODER: Final = msgspec.json.Decoder(_Identified)


@dataclass(frozen=True, slots=True)
class OsvRecord:
    """What a record says, by package (ecosystem, canonical name); other ecosystems left out.

    `ecosystems` are those of its packages, also of a withdrawn record, which has no `packages`.
    `names` are its id and its aliases, at most NAMES_MAX.
    """

    advisory_id: str
    is_withdrawn: bool
    packages: dict[tuple[Ecosystem, str], AdvisorySpec]
    ecosystems: frozenset[Ecosystem]
    modified_at: datetime | None
    names: tuple[str, ...] = ()


def parse_record(data: bytes) -> OsvRecord:
    """The record in `data`. Raises UnreadableRecord.

    A record is read completely or not at all: half of it would look like all of it.
    """
    try:
        return _parsed(data)
    except UnreadableRecord as error:
        error.advisory_id = _id_in(data)
        raise


def _parsed(data: bytes) -> OsvRecord:
    try:
        record = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRecord(f"not an OSV record: {error}") from error
    if not _is_id(record.id):
        raise UnreadableRecord(f"its id is not 1 to {ADVISORY_ID_MAX} visible ASCII characters")
    is_withdrawn = record.withdrawn is not None
    packages = {} if is_withdrawn else _packages(record)
    return OsvRecord(
        record.id,
        is_withdrawn=is_withdrawn,
        packages=packages,
        ecosystems=frozenset(filter(None, map(_ecosystem, record.affected or ()))),
        modified_at=_instant(record.modified),
        names=_names(record),
    )


def _names(record: _OsvRecord) -> tuple[str, ...]:
    """Aliases are for information only: what is not one is left out."""
    aliases = record.aliases if isinstance(record.aliases, list) else []
    texts = [alias for alias in aliases if isinstance(alias, str) and _is_id(alias)]
    return tuple(dict.fromkeys((record.id, *texts)))[:NAMES_MAX]


def _packages(record: _OsvRecord) -> dict[tuple[Ecosystem, str], AdvisorySpec]:
    packages: dict[tuple[Ecosystem, str], AdvisorySpec] = {}
    for affected in record.affected or ():
        key = _package(affected)
        if key is not None:
            packages[key] = _merged(packages.get(key), _spec(affected))
    # Built only as a check: a stored advisory that fails to load would fail every install later.
    for (ecosystem, _), spec in packages.items():
        try:
            Advisory.of(ecosystem, record.id, spec)
        except UnreadableRange as error:
            raise UnreadableRecord(f"a range of it cannot be read: {error}") from error
    return packages


def _id_in(data: bytes) -> str | None:
    try:
        advisory_id = _ID_DECODER.decode(data).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return advisory_id if _is_id(advisory_id) else None


def _is_id(text: str) -> bool:
    return len(text) <= ADVISORY_ID_MAX and _ADVISORY_ID.fullmatch(text) is not None


def _instant(value: object) -> datetime | None:
    """`modified`, for information only: None if it is not an instant."""
    try:
        at = datetime.fromisoformat(str(value))
        return at.astimezone(UTC) if at.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _ecosystem(affected: _Affected) -> Ecosystem | None:
    if affected.package is None:
        return None
    # A suffix names a release of a distribution, such as `Debian:12`; ours have none.
    return _BY_OSV_NAME.get(affected.package.ecosystem.split(":")[0].lower())


def _package(affected: _Affected) -> tuple[Ecosystem, str] | None:
    """The affected package, or None if it is of another ecosystem."""
    ecosystem = _ecosystem(affected)
    if ecosystem is None or affected.package is None:
        return None
    try:
        return ecosystem, canonical_name(ecosystem, affected.package.name)
    except InvalidPackageName as error:
        name = affected.package.name[:64]
        raise UnreadableRecord(f"{ecosystem} has no package {name}: {error}") from error


def _spec(affected: _Affected) -> AdvisorySpec:
    return AdvisorySpec(
        versions=affected.versions or [],
        ranges=[
            _boundaries(range_)
            for range_ in affected.ranges or ()
            if range_.type.upper() in _ORDERED_RANGES
        ],
        digests=sorted(_digests((affected.database_specific, affected.ecosystem_specific))),
    )


def _boundaries(range_: _Range) -> list[Boundary]:
    boundaries: list[Boundary] = []
    for event in range_.events:
        for kind, text in event.items():
            if kind not in _KINDS:
                raise UnreadableRecord(f"a range has an event of an unknown kind: {kind[:64]}")
            boundaries.append((kind, text))
    return boundaries


def _merged(one: AdvisorySpec | None, other: AdvisorySpec) -> AdvisorySpec:
    """Both specs, for a record that names a package twice. Raises UnreadableRecord if too long."""
    if one is not None:
        other = AdvisorySpec(
            versions=one.versions + other.versions,
            ranges=one.ranges + other.ranges,
            digests=sorted({*one.digests, *other.digests}),
        )
    limits = (
        (len(other.versions), VERSIONS_MAX, "versions"),
        (len(other.ranges), RANGES_MAX, "ranges"),
        (sum(map(len, other.ranges)), EVENTS_MAX, "events"),
        (len(other.digests), DIGESTS_MAX, "digests"),
    )
    for count, count_max, name in limits:
        if count > count_max:
            raise UnreadableRecord(f"it has more than {count_max} {name} of one package")
    return other


def _digests(values: Iterable[Any]) -> set[str]:
    """The digests of files below each `package_integrity` in the database's own members."""
    return {
        digest
        for value in values
        for integrity in _below(value, "package_integrity", _DEPTH_MAX)
        for digest in _digests_in(integrity, None, _DEPTH_MAX)
    }


def _below(value: Any, name: str, depth: int) -> Iterator[Any]:  # noqa: ANN401 - JSON has no one type
    """The members called `name`, at any depth up to `depth`."""
    if depth == 0:
        return
    match value:
        case dict():
            for key, inner in value.items():
                if key == name:
                    yield inner
                else:
                    yield from _below(inner, name, depth - 1)
        case list():
            for inner in value:
                yield from _below(inner, name, depth - 1)


def _digests_in(value: Any, algorithm: str | None, depth: int) -> Iterator[str]:  # noqa: ANN401
    """Digests as `{"sha256": <hex>}`, `{"algorithm": …, "hash": …}` or `sha512-<base64>`."""
    if depth == 0:
        return
    match value:
        case str():
            digest = _digest(value, algorithm)
            if digest is not None:
                yield digest
        case dict():
            stated = str(value.get("algorithm", algorithm)).lower().replace("-", "")
            for key, inner in value.items():
                named = str(key).lower().replace("-", "")
                yield from _digests_in(inner, named if named in _HEX_LENGTHS else stated, depth - 1)
        case list():
            for inner in value:
                yield from _digests_in(inner, algorithm, depth - 1)


def _digest(text: str, algorithm: str | None) -> str | None:
    """`algorithm:hex` in lower case, or None if `text` is no digest."""
    if match := _INTEGRITY.fullmatch(text):
        algorithm = match[1]
        try:
            text = base64.b64decode(match[2], validate=True).hex()
        except binascii.Error:
            return None
    elif text.partition(":")[0].lower() in _HEX_LENGTHS:
        algorithm, _, text = text.partition(":")
        algorithm = algorithm.lower()
    text = text.lower()
    if len(text) != _HEX_LENGTHS.get(algorithm or "") or not _HEX.fullmatch(text):
        return None
    return f"{algorithm}:{text}"
