"""Which past installs advisories and deny rules would have blocked, as new installs are decided."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, Literal, NamedTuple, cast

import pyarrow as pa

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit, InstallAllowed, InstallWouldBlock
from analytics.model.filters import Condition, Query, among
from analytics.model.instants import format_us
from analytics.model.policy_envelopes import InstallsMatched
from analytics.query.reader import Reader
from analytics.query.scans import conform
from analytics.query.sql import COLUMNS
from analytics.storage.snapshot import Snapshot
from service.audit.tenant_log import TenantLog
from service.core.threads import in_thread
from service.packages.ecosystem import Release
from service.packages.policy.advisories import PackageAdvisories
from service.packages.policy.evaluation import CompiledPolicy, PackagePolicy
from service.packages.policy.model import NO_POLICY, InForce, InstallPolicy, ReleaseRule
from service.packages.policy.repository import decode_advisories
from service.packages.proxy.artifacts import WithdrawnFile

EVENTS: Final = (InstallAllowed.event, InstallWouldBlock.event)
"""The rows that count: installs from public registries, also those let through in audit mode."""

PACKAGES_NAMED: Final = 20

_INSTALLS: Final = Query(conditions=(among("event", EVENTS),))
_FILE: Final = "ecosystem, package_name, version, file_sha256"
_KEY: Final = (
    "concat_ws(chr(31), ecosystem, package_name, ifnull(version, ''), ifnull(file_sha256, ''))"
)
_FILES: Final = (
    f"{_FILE}, {_KEY} AS key, count(*) AS installs, min(created_at) AS first_at,"
    " max(created_at) AS last_at,"
    " list(DISTINCT hash(repository_id, run_id)) FILTER (run_id IS NOT NULL) AS runs"
)
_WITHOUT_RULES: Final = CompiledPolicy(NO_POLICY)
_LONG_AGO: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

Package = tuple[Ecosystem, str]
"""A package by its canonical name, as rows of the install proxy have it."""

Judge = Callable[[Release], Iterable[tuple[str, str]]]
"""Tells the sources and ids of what blocks a release."""

Book = Mapping[Package, Sequence[Judge]]
"""What is decided on packages by each advisory or rule alone."""

InstalledFile = dict[str, Any]
"""A file, its installs and their CI runs (hashes), first and last one, and the `rules` on it."""


class Suspects(NamedTuple):
    """Advisories or rules: on which packages, and what loads some, as they are and as they were."""

    packages: Collection[Package] | Callable[[Package], bool]
    load: Callable[[Sequence[Package]], Awaitable[tuple[Book, Book]]]


def advisory_book(stored: Mapping[Package, Sequence[tuple[str, bytes]]]) -> Book:
    """Advisories as they are stored: several feeds may have one of the same id."""
    return {
        package: [
            partial(_blocking, _WITHOUT_RULES.on(*package, PackageAdvisories([each])))
            for each in decode_advisories(package[0], specs)
        ]
        for package, specs in stored.items()
    }


def rule_book(rules: Iterable[ReleaseRule], packages: Iterable[Package]) -> Book:
    """The deny rules, as far as they are on `packages`."""
    compiled = [CompiledPolicy(InstallPolicy(deny=(rule,))) for rule in rules]
    return {p: [partial(_blocking, each.on(*p)) for each in compiled] for p in packages}


def withdrawn_book(withdrawn: Mapping[Package, Collection[WithdrawnFile]]) -> Book:
    """Files that registries list no more. A row without a digest is of any file of a version."""
    return {p: [partial(_withdrawn, file) for file in files] for p, files in withdrawn.items()}


async def find_affected(
    log: TenantLog, suspects: Suspects, time_max_s: float | None = None
) -> list[InstalledFile]:
    """The installed files that an advisory or rule would have blocked, and not as it was before.

    Files of segments that none of the packages is in are not read. Raises StoreFault, QueryTooSlow.
    """
    packages = suspects.packages
    if callable(packages):
        search = partial(_named, is_about=packages)
        packages = await log.read(search, _INSTALLS, time_max_s)
    files = await log.read(partial(_installed, packages=packages), _INSTALLS, time_max_s)
    books = await suspects.load([*{_package(file) for file in files}])
    return await in_thread(_judged, files, books)


def count_affected(files: Iterable[InstalledFile], in_force: InForce) -> list[InstallsMatched]:
    """The installs of the files that `find_affected` found, by rule."""
    by_rule: dict[tuple[str, str], list[InstalledFile]] = {}
    for file in files:
        for rule in file["rules"]:
            by_rule.setdefault(rule, []).append(file)
    return [
        InstallsMatched(
            rule_id=rule_id,
            source=cast('Literal["osv", "operator", "registry"]', source),
            packages=sorted({":".join(_package(each)) for each in own})[:PACKAGES_NAMED],
            installs=sum(each["installs"] for each in own),
            runs=len({run for each in own for run in each["runs"] or ()}),
            first_at=format_us(min(each["first_at"] for each in own)),
            last_at=format_us(max(each["last_at"] for each in own)),
            number=in_force.generation if source == "osv" else in_force.revision,
        )
        for (source, rule_id), own in sorted(by_rule.items())
    ]


async def newest_affected(log: TenantLog, files: Sequence[InstalledFile], limit: int) -> pa.Table:
    """The newest rows of installs of these files; AUDIT_SCHEMA. Raises as above."""

    def read(reader: Reader, snapshot: Snapshot, query: Query) -> pa.Table:
        behind = f" AND {_KEY} IN (SELECT unnest($keys)) ORDER BY created_at DESC, seq DESC"
        within, keys = _of(query, map(_package, files)), [file["key"] for file in files]
        return reader.select(snapshot, within, COLUMNS, f"{behind} LIMIT {limit:d}", keys=keys)

    return conform(await log.read(read, _INSTALLS, None))


def _package(file: InstalledFile) -> Package:
    return Ecosystem(file["ecosystem"]), file["package_name"]


def _named(
    reader: Reader, snapshot: Snapshot, query: Query, *, is_about: Callable[[Package], bool]
) -> set[Package]:
    names = reader.count_all_values(snapshot, query, "package_name")
    packages = ((ecosystem, name) for name in names for ecosystem in Ecosystem)
    return {package for package in packages if is_about(package)}


def _installed(
    reader: Reader, snapshot: Snapshot, query: Query, *, packages: Collection[Package]
) -> list[InstalledFile]:
    """The files of `packages` that were installed."""
    if not packages:
        return []
    grouped = f" GROUP BY {_FILE}"
    files = reader.select(snapshot, _of(query, packages), _FILES, grouped).to_pylist()
    return [file for file in files if (file["ecosystem"], file["package_name"]) in packages]


def _judged(files: list[InstalledFile], books: tuple[Book, Book]) -> list[InstalledFile]:
    for file in files:
        package, sha256 = _package(file), file["file_sha256"]
        digests = frozenset[str]() if sha256 is None else frozenset([f"sha256:{sha256}"])
        release = Release(*package, file["version"] or "", _LONG_AGO, digests)
        new, old = (
            {each for judge in book.get(package, ()) for each in judge(release)} for book in books
        )
        file["rules"] = new - old
    return [file for file in files if file["rules"]]


def _blocking(policy: PackagePolicy, release: Release) -> Iterator[tuple[str, str]]:
    envelope = policy.decide(release, _LONG_AGO).envelope
    if isinstance(envelope, BlocklistHit):
        yield envelope.source, envelope.rule_id


def _withdrawn(file: WithdrawnFile, release: Release) -> Iterator[tuple[str, str]]:
    is_other = file.sha256 and release.digests and f"sha256:{file.sha256}" not in release.digests
    if file.version == release.version and not is_other:
        yield "registry", file.rule_id


def _of(query: Query, packages: Iterable[Package]) -> Query:
    return Query(query.since, query.until, (*query.conditions, _among(frozenset(packages))))


@lru_cache(maxsize=1)
def _among(packages: frozenset[Package]) -> Condition:
    # Kept for the next organisation: of 200,000 packages this takes as long as the query.
    return among("package_name", sorted({name for _, name in packages}))
