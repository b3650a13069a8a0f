"""Which past installs advisories and deny rules would have blocked, as new installs are decided."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import pyarrow as pa

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit, InstallAllowed, InstallWouldBlock
from analytics.model.filters import Query, among
from analytics.model.instants import format_us
from analytics.model.policy_envelopes import InstallsMatched
from analytics.query.aggregates import groups_of
from analytics.query.reader import Reader
from analytics.query.scans import conform
from analytics.storage.snapshot import Snapshot
from service.audit.tenant_log import TenantLog
from service.packages.ecosystem import InvalidPackageName, Release
from service.packages.names import canonical_name
from service.packages.policy.advisories import PackageAdvisories
from service.packages.policy.evaluation import CompiledPolicy, PackagePolicy
from service.packages.policy.model import NO_POLICY, InForce, InstallPolicy, ReleaseRule
from service.packages.policy.repository import decode_advisories

EVENTS: Final = (InstallAllowed.event, InstallWouldBlock.event)
"""The rows that count: installs from public registries, also those let through in audit mode."""

MATCHING_MAX_S: Final = 600.0
FILES_MAX: Final = 1_000_000
"""How many different files of the packages in question an organisation may have installed."""

PACKAGES_NAMED: Final = 20

_INSTALLS: Final = Query(conditions=(among("event", EVENTS),))
_FILE: Final = ("ecosystem", "package_name", "version", "file_sha256")
_FOUND: Final = pa.schema([(name, pa.string()) for name in (*_FILE, "source", "rule_id")])
_COUNTS: Final = (
    "source, rule_id, count(*) AS installs, min(created_at) first_at, max(created_at) last_at,"
    " count(DISTINCT (repository_id, run_id)) FILTER (run_id IS NOT NULL) AS runs,"
    " list_sort(list(DISTINCT of_row.ecosystem || ':' || of_row.package_name)) AS packages"
)
_WITHOUT_RULES: Final = CompiledPolicy(NO_POLICY)
_LONG_AGO: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

Package = tuple[Ecosystem, str]
"""A package by its canonical name."""

Book = Mapping[Package, Sequence[PackagePolicy]]
"""What is decided on packages by each advisory or rule alone."""

_Spellings = Mapping[tuple[str | None, str | None], Package]
"""Packages by ecosystem and name as rows have them."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Advisories or rules: whether any is on a package, and all on some packages.

    `load` returns them as they are, and as they were before.
    """

    is_about: Callable[[Package], bool]
    load: Callable[[Sequence[Package]], Awaitable[tuple[Book, Book]]]


def advisory_book(stored: Mapping[Package, Sequence[tuple[str, bytes]]]) -> Book:
    """Advisories as they are stored: several feeds may have one of the same id."""
    return {
        package: [
            _WITHOUT_RULES.on(*package, PackageAdvisories([each]))
            for each in decode_advisories(package[0], specs)
        ]
        for package, specs in stored.items()
    }


def rule_book(rules: Iterable[ReleaseRule], packages: Iterable[Package]) -> Book:
    """The deny rules, as far as they are on `packages`."""
    compiled = [CompiledPolicy(InstallPolicy(deny=(rule,))) for rule in rules]
    return {package: [each.on(*package) for each in compiled] for package in packages}


async def find_affected(log: TenantLog, suspects: Suspects) -> pa.Table:
    """The installed files that one of `suspects` would have blocked, and not as it was before.

    Package first: rows of packages that are not in question are not read. Raises StoreFault,
    QueryTooSlow.
    """
    search = partial(_spellings, is_about=suspects.is_about)
    spellings = await log.read(search, _INSTALLS, MATCHING_MAX_S)
    if not spellings:
        return _FOUND.empty_table()
    books = await suspects.load([*dict.fromkeys(spellings.values())])
    judge = partial(_judged, spellings=spellings, books=books)
    return await log.read(judge, _INSTALLS, MATCHING_MAX_S)


async def count_affected(
    log: TenantLog, found: pa.Table, in_force: InForce
) -> list[InstallsMatched]:
    """The installs of the files that `find_affected` found, by rule. Raises as it does."""
    if not found.num_rows:
        return []
    counted = await _joined(log, found, _COUNTS, "GROUP BY source, rule_id ORDER BY rule_id")
    return [
        InstallsMatched(
            **line
            | {name: format_us(line[name]) for name in ("first_at", "last_at")}
            | {"packages": line["packages"][:PACKAGES_NAMED]},
            number=in_force.generation if line["source"] == "osv" else in_force.revision,
        )
        for line in counted.to_pylist()
    ]


async def newest_affected(log: TenantLog, found: pa.Table, limit: int) -> pa.Table:
    """The newest rows of these installs; AUDIT_SCHEMA. Raises as above."""
    files = found.select(_FILE).group_by(_FILE).aggregate([])
    newest = f"ORDER BY created_at DESC, seq DESC LIMIT {limit:d}"
    return conform(await _joined(log, files, "of_row.*", newest))


async def _joined(log: TenantLog, keys: pa.Table, columns: str, behind: str) -> pa.Table:
    def read(reader: Reader, snapshot: Snapshot, query: Query) -> pa.Table:
        within = _of_packages(query, keys["package_name"].to_pylist())
        return reader.joined(snapshot, within, keys, columns, behind)

    return await log.read(read, _INSTALLS, MATCHING_MAX_S)


def _spellings(
    reader: Reader, snapshot: Snapshot, query: Query, *, is_about: Callable[[Package], bool]
) -> _Spellings:
    """The installed packages that are in question."""
    found: dict[tuple[str | None, str | None], Package] = {}
    for name in reader.count_all_values(snapshot, query, "package_name"):
        for ecosystem in Ecosystem:
            try:
                package = ecosystem, canonical_name(ecosystem, name)
            except InvalidPackageName:
                continue
            if is_about(package):
                found[str(ecosystem), name] = package
    return found


def _judged(
    reader: Reader,
    snapshot: Snapshot,
    query: Query,
    *,
    spellings: _Spellings,
    books: tuple[Book, Book],
) -> pa.Table:
    within = _of_packages(query, (name for _, name in spellings))
    lines: list[dict[str, str | None]] = []
    for group in groups_of(reader.groups(snapshot, within, _FILE, FILES_MAX)):
        ecosystem, name, version, sha256 = group.values
        if package := spellings.get((ecosystem, name)):
            digests = frozenset[str]() if sha256 is None else frozenset([f"sha256:{sha256}"])
            release = Release(*package, version or "", _LONG_AGO, digests)
            new, old = (_blocking(book.get(package, ()), release) for book in books)
            file = dict(zip(_FILE, group.values, strict=True))
            lines += [file | {"source": source, "rule_id": rule} for source, rule in new - old]
    return pa.Table.from_pylist(lines, _FOUND)


def _blocking(policies: Sequence[PackagePolicy], release: Release) -> set[tuple[str, str]]:
    """The sources and ids of what blocks the release."""
    decided = (policy.decide(release, _LONG_AGO).envelope for policy in policies)
    return {(each.source, each.rule_id) for each in decided if isinstance(each, BlocklistHit)}


def _of_packages(query: Query, names: Iterable[str | None]) -> Query:
    named = among("package_name", sorted({name for name in names if name is not None}))
    return Query(query.since, query.until, (*query.conditions, named))
