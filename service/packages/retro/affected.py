"""Which past installs advisories and deny rules would have blocked, as new installs are decided."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, Literal, cast

import pyarrow as pa

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit, InstallAllowed, InstallWouldBlock
from analytics.model.filters import VALUES_MAX, Query, among
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

VERDICTS_MAX: Final = 200_000
"""Of how many files it is remembered what is new on them: most are installed in many places."""

_INSTALLS: Final = Query(conditions=(among("event", EVENTS),))
_FILE: Final = ("ecosystem", "package_name", "version", "file_sha256")
_BY_FILE: Final = ", ".join(_FILE)
_FILES: Final = (
    f"{_BY_FILE}, count(*) AS installs, min(created_at) AS first_at, max(created_at) AS last_at,"
    " list(DISTINCT hash(repository_id, run_id)) FILTER (run_id IS NOT NULL) AS runs"
)
_SUSPECT: Final = " AND package_name IN (SELECT name FROM wanted)"
"""Those of another ecosystem have no rules; to compare it as well takes a tenth longer."""

_AFFECTED: Final = (
    " AND EXISTS (FROM wanted AS w WHERE w.name = package_name AND w.source = ecosystem"
    " AND w.of_version IS NOT DISTINCT FROM version AND w.sha256 IS NOT DISTINCT FROM file_sha256)"
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


class Suspects:
    """Advisories or rules, as they are and as they were: the same for many organisations."""

    def __init__(
        self,
        packages: Collection[Package] | Callable[[Package], bool],
        load: Callable[[Sequence[Package]], Awaitable[tuple[Book, Book]]],
    ) -> None:
        """They are on `packages`, and `load` loads what is decided on some of them."""
        self.packages = packages if callable(packages) else _table(packages)
        self._load = load
        self._known: dict[Package, tuple[Sequence[Judge], Sequence[Judge]]] = {}
        self._verdict = lru_cache(VERDICTS_MAX)(self._judge)

    async def judged(self, files: pa.Table) -> list[InstalledFile]:
        """Those of `files` that they are on, and were not before."""
        packages = files.group_by(list(_FILE[:2])).aggregate([]).to_pylist()
        unknown = [each for each in map(_package, packages) if each not in self._known]
        new, old = await self._load(unknown)
        self._known |= {each: (new.get(each, ()), old.get(each, ())) for each in unknown}
        return await in_thread(self._affected, files)

    def _affected(self, files: pa.Table) -> list[InstalledFile]:
        columns = (files[name].to_pylist() for name in _FILE)
        rules = [self._verdict(*file) for file in zip(*columns, strict=True)]
        affected = files.filter(pa.array(map(bool, rules), pa.bool_())).to_pylist()
        said = filter(None, rules)
        return [file | {"rules": own} for file, own in zip(affected, said, strict=True)]

    def _judge(
        self, ecosystem: str, name: str, version: str | None, sha256: str | None
    ) -> set[tuple[str, str]]:
        package = Ecosystem(ecosystem), name
        digests = frozenset[str]() if sha256 is None else frozenset([f"sha256:{sha256}"])
        release = Release(*package, version or "", _LONG_AGO, digests)
        new, old = (
            {each for judge in own for each in judge(release)} for own in self._known[package]
        )
        return new - old


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

    Raises StoreFault, QueryTooSlow.
    """
    packages = suspects.packages
    if callable(packages):
        search = partial(_named, is_about=packages)
        packages = _table(await log.read(search, _INSTALLS, time_max_s))
    if not packages.num_rows:
        return []
    read = partial(_select, columns=_FILES, behind=f"{_SUSPECT} GROUP BY ALL", wanted=packages)
    return await suspects.judged(await log.read(read, _INSTALLS, time_max_s))


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
    wanted = pa.table(
        [pa.array([file[name] for file in files], pa.string()) for name in _FILE],
        names=["source", "name", "of_version", "sha256"],
    )
    behind = f"{_AFFECTED} ORDER BY created_at DESC, seq DESC LIMIT {limit:d}"
    read = partial(_select, columns=COLUMNS, behind=behind, wanted=wanted)
    return conform(await log.read(read, _INSTALLS, None))


def _package(file: InstalledFile) -> Package:
    return Ecosystem(file["ecosystem"]), file["package_name"]


def _table(packages: Collection[Package]) -> pa.Table:
    ecosystems, names = zip(*packages, strict=True) if packages else ((), ())
    columns = [pa.array(map(str, ecosystems), pa.string()), pa.array(names, pa.string())]
    return pa.table(columns, names=["source", "name"])


def _named(
    reader: Reader, snapshot: Snapshot, query: Query, *, is_about: Callable[[Package], bool]
) -> set[Package]:
    names = reader.count_all_values(snapshot, query, "package_name")
    packages = ((ecosystem, name) for name in names for ecosystem in Ecosystem)
    return {package for package in packages if is_about(package)}


def _select(
    reader: Reader, snapshot: Snapshot, query: Query, *, columns: str, behind: str, wanted: pa.Table
) -> pa.Table:
    if wanted.num_rows <= VALUES_MAX:  # so that the indexes tell which files have none of them
        names = among("package_name", sorted({*wanted["name"].to_pylist()}))
        query = replace(query, conditions=(*query.conditions, names))
    return reader.select(snapshot, query, columns, behind, {"wanted": wanted})


def _blocking(policy: PackagePolicy, release: Release) -> Iterator[tuple[str, str]]:
    envelope = policy.decide(release, _LONG_AGO).envelope
    if isinstance(envelope, BlocklistHit):
        yield envelope.source, envelope.rule_id


def _withdrawn(file: WithdrawnFile, release: Release) -> Iterator[tuple[str, str]]:
    is_other = file.sha256 and release.digests and f"sha256:{file.sha256}" not in release.digests
    if file.version == release.version and not is_other:
        yield "registry", file.rule_id
