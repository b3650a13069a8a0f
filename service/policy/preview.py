"""Previews what a policy would have done to the installs of the last 30 days.

The blocklist is not considered: it is in force with or without the policy.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from analytics.model.filters import Query, parse_query
from analytics.model.instants import format_us
from analytics.query.aggregates import Group
from service.audit.tenant_log import TenantLog
from service.packages.ecosystems import Ecosystem
from service.packages.names import InvalidPackageName, canonical_name
from service.packages.release import Release
from service.policy.evaluation import PackagePolicy, package_policy
from service.policy.model import Decision, InstallPolicy

WINDOW: Final = timedelta(days=30)
RELEASES_MAX: Final = 10_000
"""How many different releases are judged: the most often installed ones."""
JOBS_MAX: Final = 5_000
PACKAGES_ASKED_MAX: Final = 90
"""Blocked packages whose jobs are looked up: a query takes no more values."""
TOP: Final = 10
_AT_ONCE: Final = 250
"""How many releases are judged before other requests get their turn."""
_COLUMNS: Final = ("ecosystem", "package_name", "version")
_JOB_COLUMNS: Final = (*_COLUMNS, "subject")

_Key = tuple[str | None, ...]


@dataclass(slots=True)
class Preview:
    """Installs (allowed rows) since `since`, and what the policy would have done to them.

    `jobs` are CI subjects; `unattributed` counts blocked installs without one. `undated` installs
    are subject to the cooldown, but the log does not say how old their releases were. `unjudged`
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
    log: TenantLog, policy: InstallPolicy, now: datetime, time_max_s: float
) -> Preview:
    """What `policy` would have done to the installs in `log`. Raises QueryTooSlow, StoreFault."""
    since = now - WINDOW
    query = _installs(since)
    preview = Preview(since)
    preview.installs = await log.count(query, time_max_s)
    groups = await log.groups(query, _COLUMNS, RELEASES_MAX + 1, time_max_s)
    preview.is_complete = len(groups) <= RELEASES_MAX
    blocked = await _judge(preview, policy, groups[:RELEASES_MAX], now)
    await _count_jobs(preview, log, since, blocked, time_max_s)
    return preview


def _installs(since: datetime, packages: Sequence[str] = ()) -> Query:
    parameters = {"since": [format_us(since)], "decision": ["ALLOWED"]}
    if packages:
        parameters["package"] = list(packages)
    return parse_query(parameters)


async def _judge(
    preview: Preview, policy: InstallPolicy, groups: Sequence[Group], now: datetime
) -> set[_Key]:
    """Count the installs that would be blocked; returns their releases as named in the rows."""
    policies: dict[tuple[Ecosystem, str], PackagePolicy] = {}
    blocked: set[_Key] = set()
    for number, group in enumerate(groups):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        release = _release(group.values)
        if release is None:
            preview.unjudged += group.rows
            continue
        key = release.ecosystem, release.name
        if key not in policies:
            policies[key] = package_policy(policy, (), *key)
        # Judged as if published long ago: a row does not say how old its release was.
        decision = policies[key].decide(release, now)
        if policies[key].registry is not None:
            preview.first_party += group.rows
        elif decision.is_blocked:
            _count_blocked(preview, release, decision, group.rows)
            blocked.add(group.values)
        elif policies[key].min_age is not None and decision.rule_id is None:
            undated = _without_age(release)
            preview.undated += group.rows if policies[key].decide(undated, now).is_blocked else 0
    return blocked


def _count_blocked(preview: Preview, release: Release, decision: Decision, rows: int) -> None:
    preview.blocked += rows
    preview.packages[release.ecosystem, release.name] += rows
    preview.rules[decision.rule_id or ""] += rows


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


def _without_age(release: Release) -> Release:
    return Release(release.ecosystem, release.name, release.version)


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
        if subject is None:
            preview.unattributed += group.rows
        else:
            preview.jobs[subject] += group.rows
