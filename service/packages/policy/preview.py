"""Previews what a policy would have done to the installs of the last 30 days.

The blocklist is not considered: it is in force with or without the policy. What the past does not
tell is counted apart: the dates of some releases, their provenance, which of them was the cure.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Protocol

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import InstallWouldBlock, TrustDowngraded
from analytics.model.filters import Query, literal, parse_query
from analytics.model.instants import format_us, later
from analytics.query.aggregates import Group
from analytics.query.reader import Reader
from analytics.storage.snapshot import Snapshot
from service.audit.tenant_log import TenantLog
from service.audit.worker_process import WorkerProcess
from service.core.fair_queue import Length
from service.packages.ecosystem import (
    ComparableVersion,
    InvalidPackageName,
    Release,
)
from service.packages.names import canonical_name
from service.packages.policy.document import decode_document, encode_document
from service.packages.policy.evaluation import CompiledPolicy, PackagePolicy
from service.packages.policy.model import InstallPolicy
from service.packages.versions import find_version

WINDOW: Final = timedelta(days=30)
RELEASES_MAX: Final = 10_000
"""How many different releases are judged: the most often installed ones."""
JOBS_MAX: Final = 5_000
PACKAGES_ASKED_MAX: Final = 90
"""Blocked packages whose jobs are looked up: a query takes no more values."""
DATING_MAX_S: Final = 5.0
"""How long dates of releases are looked for: of the packages installed most often first."""
STRADDLING_MAX: Final = 50
"""Releases that became old enough in the window: each takes a query."""
COOLDOWN: Final = "cooldown"
"""What blocks a release that is too young, among the ids of rules."""
TRUST: Final = "trust"
"""What blocks a release of weaker provenance, among them."""
_MARK: Final = f'"blocked_by":"{TrustDowngraded.event}"'
TOP: Final = 10
RELEASES_AT_ONCE: Final = 500
"""How many releases one computation of the worker process judges: a part of a second at most."""
STEPS_MAX: Final = 1_000_000
"""How much work the judgements may be: each release and each character of a package's name is one
step, each range of the rules on a package STEPS_PER_RANGE. 10,000 packages with usual names and ten
ranges each are less."""
STEPS_PER_RANGE: Final = 6
_COLUMNS: Final = ("ecosystem", "package_name", "version")
_JOB_COLUMNS: Final = (*_COLUMNS, "subject")

_LONG_AGO: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_LONG_AFTER: Final = datetime.fromisoformat("2970-01-01T00:00:00+00:00")
"""No cooldown lasts so long."""

_Key = tuple[str | None, ...]


class ReleaseListings(Protocol):
    """What registries list, as far as it is known."""

    async def of(self, ecosystem: Ecosystem, name: str) -> Sequence[Release]:
        """All files of the package `name` (canonical); none if it is not known."""

    async def withdrawn(self, ecosystem: Ecosystem, name: str) -> Mapping[str, datetime]:
        """The versions of the package that were withdrawn, and since when."""


@dataclass(slots=True)
class Preview:
    """Installs (allowed rows) since `since`, and what the policy would have done to them.

    `jobs` are CI subjects; `unattributed` counts blocked installs without one. `undated` installs
    are subject to the cooldown, but it is not known when their releases were published. With a
    trust rule, `distrusted` ones might have been blocked: their rows do not have what the registry
    said. If it `has_cure`, `maybe_cured` ones of the blocked might have been the cure. `unjudged`
    ones have no ecosystem, or an invalid name. `is_complete` is False if there were more different
    releases, or blocked packages, than are considered.
    """

    since: datetime
    has_cure: bool = False
    installs: int = 0
    blocked: int = 0
    first_party: int = 0
    undated: int = 0
    distrusted: int = 0
    maybe_cured: int = 0
    unjudged: int = 0
    unattributed: int = 0
    is_complete: bool = True
    packages: Counter[tuple[str, str]] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)

    def add_blocked(self, release: Release, rule: str, rows: int) -> None:
        """Count installs of `release` that `rule` would have blocked."""
        self.blocked += rows
        self.packages[release.ecosystem, release.name] += rows
        self.rules[rule] += rows
        self.maybe_cured += rows if self.has_cure and rule == COOLDOWN else 0

    def add_job(self, subject: str | None, rows: int) -> None:
        """Count blocked installs of a CI subject, or of none."""
        if subject is None:
            self.unattributed += rows
        else:
            self.jobs[subject] += rows


async def preview_policy(
    log: TenantLog,
    policy: InstallPolicy,
    listings: ReleaseListings,
    worker: WorkerProcess,
    now: datetime,
    time_max_s: float,
) -> Preview:
    """What `policy` would have done to the installs in `log`. Raises QueryTooSlow, StoreFault."""
    has_cure = policy.cooldown is not None and policy.cooldown.cure
    previewing = _Previewing(Preview(now - WINDOW, has_cure), log, now, time_max_s)
    await previewing.judge(worker, policy)
    ends_at = time.monotonic() + DATING_MAX_S
    await previewing.date(listings, ends_at)
    await previewing.count_jobs()
    await previewing.count_early()
    if policy.trust is not None:
        await previewing.distrust(is_refused=policy.trust.action == "refuse")
    return previewing.preview


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a policy says about a release.

    `blocked_by` is the rule that blocks it at any age. `min_age` is set if the cooldown applies,
    `is_on_trust` if the trust rule does.
    """

    release: Release
    is_first_party: bool = False
    blocked_by: str | None = None
    min_age: timedelta | None = None
    is_on_trust: bool = False


@dataclass(frozen=True, slots=True)
class _Cooling:
    """A group of installs of a release that the cooldown applies to: until it is of this age."""

    release: Release
    version: ComparableVersion
    group: Group
    min_age: timedelta


@dataclass(frozen=True, slots=True)
class _Straddling:
    """Installs of a release, of which those before `until` would have been blocked."""

    release: Release
    group: Group
    until: datetime


@dataclass(slots=True)
class _Previewing:
    """A preview that is being made.

    `blocked` are releases of which all installs would be blocked, as named in the rows.
    """

    preview: Preview
    log: TenantLog
    now: datetime
    time_max_s: float
    blocked: set[_Key] = field(default_factory=set)
    cooling: list[_Cooling] = field(default_factory=list)
    straddling: list[_Straddling] = field(default_factory=list)
    on_trust: dict[_Key, tuple[Release, int]] = field(default_factory=dict)

    async def judge(self, worker: WorkerProcess, policy: InstallPolicy) -> None:
        """Count the installs that would be blocked at any age of their release.

        Those that depend on that age are `cooling`.
        """
        preview, query = self.preview, self._installs()
        preview.installs = await self.log.count(query, self.time_max_s)
        groups = await self._groups(query, _COLUMNS, RELEASES_MAX)
        document, steps = encode_document(policy), 0
        for start in range(0, len(groups), RELEASES_AT_ONCE):
            if steps >= STEPS_MAX:
                preview.is_complete = False
                break
            part = groups[start : start + RELEASES_AT_ONCE]
            judged, taken = await worker.compute(
                self.log.org.id,
                judge_releases,
                document,
                [group.values for group in part],
                length=Length.LONG,
            )
            steps += taken
            for group, judgement in zip(part, judged, strict=False):
                self._count(group, judgement)
            preview.is_complete &= len(judged) == len(part)

    def _count(self, group: Group, judgement: Judgement | None) -> None:
        if judgement is None:
            self.preview.unjudged += group.rows
        elif judgement.is_first_party:
            self.preview.first_party += group.rows
        elif judgement.blocked_by is not None:
            self.preview.add_blocked(judgement.release, judgement.blocked_by, group.rows)
            self.blocked.add(group.values)
        else:
            self._count_relative(group, judgement)

    def _count_relative(self, group: Group, judgement: Judgement) -> None:
        """Count what depends on more than the rules say."""
        release = judgement.release
        if judgement.is_on_trust:
            self.on_trust[group.values] = release, group.rows
        if judgement.min_age is not None:
            version = find_version(release.ecosystem, release.version)
            if version is None:
                self.preview.undated += group.rows
            else:
                self.cooling.append(_Cooling(release, version, group, judgement.min_age))

    async def date(self, listings: ReleaseListings, ends_at: float) -> None:
        """Count the installs of releases that were too young, as far as their dates are known.

        Those that were too young for a part of the window are `straddling`.
        """
        by_package: dict[tuple[Ecosystem, str], list[_Cooling]] = {}
        for entry in self.cooling:
            by_package.setdefault((entry.release.ecosystem, entry.release.name), []).append(entry)
        for package, entries in by_package.items():
            known: Mapping[ComparableVersion, datetime] = {}
            if time.monotonic() < ends_at:
                known = _dates(await listings.of(*package))
            for entry in entries:
                group, published_at = entry.group, known.get(entry.version)
                until = None if published_at is None else later(published_at, entry.min_age)
                if until is None:
                    self.preview.undated += group.rows
                elif group.last < until:
                    self.preview.add_blocked(entry.release, COOLDOWN, group.rows)
                    self.blocked.add(group.values)
                elif group.first < until:
                    self.straddling.append(_Straddling(entry.release, group, until))

    async def count_jobs(self) -> None:
        """Count the installs of `blocked` by CI subject."""
        names = sorted({str(name) for _, name, _ in self.blocked})
        if not names:
            return
        self.preview.is_complete &= len(names) <= PACKAGES_ASKED_MAX
        query = self._installs(package=names[:PACKAGES_ASKED_MAX])
        for group in await self._groups(query, _JOB_COLUMNS, JOBS_MAX):
            *release, subject = group.values
            if tuple(release) in self.blocked:
                self.preview.add_job(subject, group.rows)

    async def count_early(self) -> None:
        """Count the installs of `straddling` before they were old enough, and their jobs."""
        for entry in self.straddling[STRADDLING_MAX:]:
            self.preview.undated += entry.group.rows
        for entry in self.straddling[:STRADDLING_MAX]:
            named = zip(("ecosystem", "package", "version"), entry.group.values, strict=True)
            values = {name: [value] for name, value in named if value is not None}
            query = self._installs(entry.until, **values)
            for group in await self._groups(query, ("subject",), JOBS_MAX):
                self.preview.add_blocked(entry.release, COOLDOWN, group.rows)
                self.preview.add_job(group.values[0], group.rows)

    async def distrust(self, *, is_refused: bool) -> None:
        """Count the installs that were of weaker provenance, as far as their rows say so.

        Of others that the trust rule is on this is not known.
        """
        early = {entry.group.values for entry in self.straddling}
        left = {key: own for key, own in self.on_trust.items() if key not in self.blocked | early}
        self.preview.distrusted = sum(rows for _, rows in left.values())
        query = self._installs(event=[InstallWouldBlock.event])
        for *values, subject, rows in await self.log.read(_marked, query, self.time_max_s):
            key = tuple(values)
            if key in left:
                self.preview.distrusted -= rows
                if is_refused:
                    self.preview.add_blocked(left[key][0], TRUST, rows)
                    self.preview.add_job(subject, rows)

    def _installs(self, until: datetime | None = None, **named: Sequence[str]) -> Query:
        """The installs in the window with one of the values `named` for each column."""
        parameters = {"since": [format_us(self.preview.since)], "decision": ["ALLOWED"]}
        if until is not None:
            parameters["until"] = [format_us(until)]
        return parse_query(
            parameters | {name: [*map(literal, values)] for name, values in named.items()}
        )

    async def _groups(
        self, query: Query, columns: tuple[str, ...], groups_max: int
    ) -> Sequence[Group]:
        """The largest groups; if there are more, the preview is not complete."""
        groups = await self.log.groups(query, columns, groups_max + 1, self.time_max_s)
        self.preview.is_complete &= len(groups) <= groups_max
        return groups[:groups_max]


def _marked(reader: Reader, snapshot: Snapshot, query: Query) -> list[tuple[Any, ...]]:
    """The releases, subjects and numbers of installs that a trust rule marked."""
    columns = ", ".join(_JOB_COLUMNS)
    marked = f" AND contains(decision_reason, '{_MARK}') GROUP BY {columns}"
    table = reader.select(snapshot, query, f"{columns}, count(*) AS rows", marked, {})
    return [tuple(row.values()) for row in table.to_pylist()]


def judge_releases(document: bytes, releases: Sequence[_Key]) -> tuple[list[Judgement | None], int]:
    """The judgement on each release, None without a valid name; and how many steps it took.

    For a worker process. Stops after STEPS_MAX steps: then the list is shorter.
    """
    policy = _compiled(document)
    judged: list[Judgement | None] = []
    packages: dict[tuple[Ecosystem, str], PackagePolicy] = {}
    steps = 0
    for values in releases:
        if steps >= STEPS_MAX:
            break
        steps += 1
        release = _release(values)
        if release is None:
            judged.append(None)
            continue
        key = release.ecosystem, release.name
        if key not in packages:
            packages[key] = policy.on(*key)
            rules = packages[key].deny.ranges + packages[key].allow.ranges
            steps += len(release.name) + STEPS_PER_RANGE * rules
        judged.append(_judgement(packages[key], release))
    return judged, steps


@lru_cache(maxsize=4)
def _compiled(document: bytes) -> CompiledPolicy:
    """The policy in `document`, which several calls ask for."""
    return CompiledPolicy(decode_document(document))


def _judgement(policy: PackagePolicy, release: Release) -> Judgement:
    if policy.registry is not None:
        return Judgement(release, is_first_party=True)
    # As if published long ago: then the cooldown alone is left out.
    decision = policy.decide(release, _LONG_AFTER)
    if decision.is_blocked:
        return Judgement(release, blocked_by=decision.rule_id or "")
    # Of unknown age it counts as new.
    new, trust = Release(release.ecosystem, release.name, release.version), policy.trust
    is_cooling = policy.min_age is not None and policy.decide(new, _LONG_AFTER).is_blocked
    version = find_version(release.ecosystem, release.version)
    is_on_trust = trust is not None and not trust.is_exempt(new, version, _LONG_AFTER)
    return Judgement(
        release, min_age=policy.min_age if is_cooling else None, is_on_trust=is_on_trust
    )


def _release(values: _Key) -> Release | None:
    ecosystem, name, version = values
    if ecosystem not in set(Ecosystem) or name is None:
        return None
    try:
        canonical = canonical_name(Ecosystem(ecosystem), name)
    except InvalidPackageName:
        return None
    return Release(Ecosystem(ecosystem), canonical, version or "", _LONG_AGO)


def _dates(listed: Sequence[Release]) -> dict[ComparableVersion, datetime]:
    """When each version was published: it is as old as its first file."""
    dates: dict[ComparableVersion, datetime] = {}
    for release in listed:
        version, at = find_version(release.ecosystem, release.version), release.published_at
        if version is not None and at is not None:
            dates[version] = min(at, dates.get(version, at))
    return dates
