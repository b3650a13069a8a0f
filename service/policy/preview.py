"""Previews what a policy would have done to the installs of the last 30 days.

The blocklist is not considered: it is in force with or without the policy.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from analytics.model.filters import Query, literal, parse_query
from analytics.model.instants import format_us
from analytics.query.aggregates import Group
from service.audit.tenant_log import TenantLog
from service.packages.ecosystems import Ecosystem
from service.packages.names import InvalidPackageName, canonical_name
from service.packages.release import Release
from service.packages.versions import InvalidVersion, Version, parse_version
from service.policy.evaluation import PackagePolicy, package_policy
from service.policy.model import InstallPolicy

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
TOP: Final = 10
JUDGING_MAX_S: Final = 10.0
"""How long releases are judged: the most often installed ones first."""
_TURN_S: Final = 0.01
"""How long releases are judged before other requests get their turn."""
_COLUMNS: Final = ("ecosystem", "package_name", "version")
_JOB_COLUMNS: Final = (*_COLUMNS, "subject")

_Key = tuple[str | None, ...]


class ReleaseDates(Protocol):
    """Tells when releases were published."""

    async def of(
        self, ecosystem: Ecosystem, name: str, versions: Collection[Version]
    ) -> Mapping[Version, datetime]:
        """The dates of those of `versions` that are known; `name` is canonical."""


@dataclass(slots=True)
class Preview:
    """Installs (allowed rows) since `since`, and what the policy would have done to them.

    `jobs` are CI subjects; `unattributed` counts blocked installs without one. `undated` installs
    are subject to the cooldown, but it is not known when their releases were published. `unjudged`
    ones have no ecosystem, or an invalid name. `is_complete` is False if there were more different
    releases, or blocked packages, than are considered.
    """

    since: datetime
    installs: int = 0
    blocked: int = 0
    first_party: int = 0
    undated: int = 0
    unjudged: int = 0
    unattributed: int = 0
    is_complete: bool = True
    packages: Counter[tuple[str, str]] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)


async def preview_policy(
    log: TenantLog,
    policy: InstallPolicy,
    dates: ReleaseDates,
    now: datetime,
    time_max_s: float,
) -> Preview:
    """What `policy` would have done to the installs in `log`. Raises QueryTooSlow, StoreFault."""
    since = now - WINDOW
    query = _installs(since)
    preview = Preview(since)
    preview.installs = await log.count(query, time_max_s)
    groups = await log.groups(query, _COLUMNS, RELEASES_MAX + 1, time_max_s)
    preview.is_complete = len(groups) <= RELEASES_MAX
    blocked, cooling = await _judge(preview, policy, groups[:RELEASES_MAX], now)
    ends_at = time.monotonic() + DATING_MAX_S
    straddling = await _date(preview, cooling, dates, blocked, ends_at)
    await _count_jobs(preview, log, since, blocked, time_max_s)
    await _count_early(preview, log, straddling, time_max_s)
    return preview


def _installs(since: datetime, packages: Sequence[str] = ()) -> Query:
    parameters = {"since": [format_us(since)], "decision": ["ALLOWED"]}
    if packages:
        parameters["package"] = [literal(name) for name in packages]
    return parse_query(parameters)


@dataclass(frozen=True, slots=True)
class _Cooling:
    """A group of installs of a release that the cooldown applies to: until it is of this age."""

    release: Release
    version: Version
    group: Group
    min_age: timedelta


@dataclass(frozen=True, slots=True)
class _Straddling:
    """Installs of a release, of which those before `until` would have been blocked."""

    release: Release
    group: Group
    until: datetime


async def _judge(
    preview: Preview, policy: InstallPolicy, groups: Sequence[Group], now: datetime
) -> tuple[set[_Key], list[_Cooling]]:
    """Count the installs that would be blocked at any age of their release.

    Returns their releases as named in the rows, and the installs that depend on that age.
    """
    policies: dict[tuple[Ecosystem, str], PackagePolicy] = {}
    blocked: set[_Key] = set()
    cooling: list[_Cooling] = []
    ends_at = time.monotonic() + JUDGING_MAX_S
    turn_ends_at = 0.0
    for group in groups:
        # With the most and widest rules that a policy may have, one release takes 15 ms.
        if time.monotonic() >= turn_ends_at:
            await asyncio.sleep(0)
            turn_ends_at = time.monotonic() + _TURN_S
        if time.monotonic() >= ends_at:
            preview.is_complete = False
            break
        release = _release(group.values)
        if release is None:
            preview.unjudged += group.rows
            continue
        key = release.ecosystem, release.name
        if key not in policies:
            policies[key] = package_policy(policy, (), *key)
        of_package = policies[key]
        # As if published long ago: then the cooldown alone is left out.
        decision = of_package.decide(release, now)
        if of_package.registry is not None:
            preview.first_party += group.rows
        elif decision.is_blocked:
            _count_blocked(preview, release, decision.rule_id or "", group.rows)
            blocked.add(group.values)
        elif of_package.min_age is not None and of_package.decide(_new(release), now).is_blocked:
            version = _version(release)
            if version is None:
                preview.undated += group.rows
            else:
                cooling.append(_Cooling(release, version, group, of_package.min_age))
    return blocked, cooling


async def _date(
    preview: Preview,
    cooling: Sequence[_Cooling],
    dates: ReleaseDates,
    blocked: set[_Key],
    ends_at: float,
) -> list[_Straddling]:
    """Count the installs of releases that were too young, as far as their dates are known.

    Adds releases of which all installs would be blocked to `blocked`; returns those of which some.
    """
    by_package: dict[tuple[Ecosystem, str], list[_Cooling]] = {}
    for entry in cooling:
        by_package.setdefault((entry.release.ecosystem, entry.release.name), []).append(entry)
    straddling: list[_Straddling] = []
    for package, entries in by_package.items():
        known: Mapping[Version, datetime] = {}
        if time.monotonic() < ends_at:
            known = await dates.of(*package, {entry.version for entry in entries})
        for entry in entries:
            group, published_at = entry.group, known.get(entry.version)
            until = None if published_at is None else _later(published_at, entry.min_age)
            if until is None:
                preview.undated += group.rows
            elif group.last < until:
                _count_blocked(preview, entry.release, COOLDOWN, group.rows)
                blocked.add(group.values)
            elif group.first < until:
                straddling.append(_Straddling(entry.release, group, until))
    return straddling


async def _count_early(
    preview: Preview, log: TenantLog, straddling: Sequence[_Straddling], time_max_s: float
) -> None:
    """Count the installs of each release before it was old enough, and their jobs."""
    for number, entry in enumerate(straddling):
        if number >= STRADDLING_MAX:
            preview.undated += entry.group.rows
            continue
        names = ("ecosystem", "package", "version")
        query = parse_query(
            {
                "since": [format_us(preview.since)],
                "until": [format_us(entry.until)],
                "decision": ["ALLOWED"],
                **{
                    name: [literal(value)]
                    for name, value in zip(names, entry.group.values, strict=True)
                    if value is not None
                },
            }
        )
        groups = await log.groups(query, ("subject",), JOBS_MAX + 1, time_max_s)
        preview.is_complete &= len(groups) <= JOBS_MAX
        for group in groups[:JOBS_MAX]:
            _count_blocked(preview, entry.release, COOLDOWN, group.rows)
            _count_job(preview, group.values[0], group.rows)


def _count_blocked(preview: Preview, release: Release, rule: str, rows: int) -> None:
    preview.blocked += rows
    preview.packages[release.ecosystem, release.name] += rows
    preview.rules[rule] += rows


def _count_job(preview: Preview, subject: str | None, rows: int) -> None:
    if subject is None:
        preview.unattributed += rows
    else:
        preview.jobs[subject] += rows


_LONG_AGO: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _release(values: _Key) -> Release | None:
    ecosystem, name, version = values
    if ecosystem not in set(Ecosystem) or name is None:
        return None
    try:
        canonical = canonical_name(Ecosystem(ecosystem), name)
    except InvalidPackageName:
        return None
    return Release(Ecosystem(ecosystem), canonical, version or "", _LONG_AGO)


def _new(release: Release) -> Release:
    """The release as one of unknown age, which counts as new."""
    return Release(release.ecosystem, release.name, release.version)


def _version(release: Release) -> Version | None:
    try:
        return parse_version(release.ecosystem, release.version)
    except InvalidVersion:
        return None


def _later(at: datetime, age: timedelta) -> datetime:
    try:
        return at + age
    except OverflowError:  # a date that a registry made up
        return datetime.max.replace(tzinfo=UTC)


async def _count_jobs(
    preview: Preview, log: TenantLog, since: datetime, blocked: set[_Key], time_max_s: float
) -> None:
    """Count the blocked installs by CI subject."""
    names = sorted({str(name) for _, name, _ in blocked})
    if not names:
        return
    if len(names) > PACKAGES_ASKED_MAX:
        preview.is_complete = False
    query = _installs(since, names[:PACKAGES_ASKED_MAX])
    groups = await log.groups(query, _JOB_COLUMNS, JOBS_MAX + 1, time_max_s)
    if len(groups) > JOBS_MAX:
        preview.is_complete = False
    for group in groups[:JOBS_MAX]:
        *release, subject = group.values
        if tuple(release) not in blocked:
            continue
        _count_job(preview, subject, group.rows)
