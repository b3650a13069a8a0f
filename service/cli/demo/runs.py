"""When the demo's jobs ran, how many packages they asked for, and which were bad."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Final

from analytics.model.envelopes import InstallAllowed
from analytics.model.events import Decision
from analytics.model.instants import midnight
from service.cli.demo.calendar import Calendar, is_workday, seeded, to_us
from service.cli.demo.packages import Verdict, blocked, verdict
from service.cli.demo.profile import EcosystemName, JobEntry, Profile, TokenEntry

RECEIVED_WITHIN_US: Final = 10_000
"""The longest time from a request to the storing of its rows."""

_HOUR_US: Final = 3_600_000_000
_GAP_US: Final = (4_000, 38_000)  # between two installs of a run
_RUN_MAX_US: Final = 5_000_000  # no run is longer, so that none extends into the next day
_SPREAD: Final = (0.75, 1.25)  # how much one day's number of runs, and one run's size, vary
_INSTALLS_SPREAD: Final = (0.6, 1.4)
_ONSET: Final = 1.7  # above 1, an incident is worst where it begins
_SCHEDULE: Final = "schedule"


@dataclass(frozen=True, slots=True)
class JobRun:
    """One request of a job: `installs` packages of its lockfile, and `more` that it asked for."""

    at_us: int
    gap_us: int
    job: str
    event_name: str
    installs: int
    more: tuple[Verdict, ...]

    @property
    def rows(self) -> int:
        """How many audit rows it has."""
        return self.installs + len(self.more)

    @property
    def is_over_us(self) -> int:
        """When its last row is stored."""
        return self.at_us + self.gap_us * self.rows + RECEIVED_WITHIN_US


class RunPlanner:
    """Draws the runs of a day, always the same for the same profile and calendar."""

    def __init__(self, profile: Profile, calendar: Calendar) -> None:
        self._profile = profile
        self._calendar = calendar
        self._now_us = to_us(calendar.now)
        self._usable_us = {name: self._usable_from(job) for name, job in profile.jobs.items()}
        self._blocklist: Mapping[EcosystemName, list[Verdict]] = {
            ecosystem: [blocked(rule) for rule in profile.blocklist if rule.ecosystem == ecosystem]
            for ecosystem in profile.ecosystems
        }
        incident = profile.incident
        self._outbreak = blocked(incident.rule)
        self._unnoticed = verdict(incident.rule.package, incident.rule.version, InstallAllowed())
        self._breaks_out_us = to_us(calendar.instant(incident))
        self._begins_us = self._breaks_out_us - int(incident.unnoticed_hours * _HOUR_US)
        self._is_contained_us = self._breaks_out_us + int(incident.hours * _HOUR_US)

    def runs_of(self, day: date) -> list[JobRun]:
        """The runs of `day` that are over by `now`, by time."""
        number = self._calendar.days.index(day)
        chance = seeded(self._profile.seed, "runs", number)
        runs = [
            self._run(name, job, event_name, at_us, chance)
            for name, job in self._profile.jobs.items()
            for at_us, event_name in self._starts(day, job, chance)
        ]
        runs += self._retries(day, chance)
        possible = [
            run
            for run in runs
            if run.at_us >= self._usable_us[run.job] and run.is_over_us <= self._now_us
        ]
        return sorted(possible, key=lambda run: run.at_us)

    def _usable_from(self, job: JobEntry) -> int:
        """A job runs from the first day on, or once its key is issued."""
        issued = self._profile.keys[job.key].issued
        opened: datetime = self._calendar.traffic_from
        return to_us(opened if issued is None else self._calendar.instant(issued))

    def _starts(self, day: date, job: JobEntry, chance: Random) -> Iterator[tuple[int, str]]:
        hours = self._profile.hours
        weights = hours.weekday if is_workday(day) else hours.weekend
        mean = job.runs_per_day * (1.0 if is_workday(day) else hours.weekend_share)
        count = int(mean * chance.uniform(*_SPREAD) + chance.random())
        for hour in chance.choices(range(24), weights, k=count):
            at_us = to_us(midnight(day)) + hour * _HOUR_US
            yield at_us + chance.randrange(_HOUR_US - _RUN_MAX_US), _event(job.token, chance)
        for clock in job.nightly:
            at_us = to_us(datetime.combine(day, clock, UTC))
            yield at_us + chance.randrange(40_000_000), _SCHEDULE

    def _retries(self, day: date, chance: Random) -> list[JobRun]:
        """The runs that people restarted during the incident."""
        if day != self._calendar.workdays[self._profile.incident.workday]:
            return []
        ecosystem = self._profile.incident.rule.ecosystem
        hit = {n: job for n, job in self._profile.jobs.items() if job.ecosystem == ecosystem}
        names = chance.choices(
            list(hit),
            [job.runs_per_day for job in hit.values()],
            k=self._profile.incident.retries,
        )
        lasts_us = self._is_contained_us - self._breaks_out_us
        return [
            self._run(
                name,
                hit[name],
                _event(hit[name].token, chance),
                self._breaks_out_us + int(lasts_us * chance.random() ** _ONSET),
                chance,
            )
            for name in names
        ]

    def _run(self, name: str, job: JobEntry, event_name: str, at_us: int, chance: Random) -> JobRun:
        installs = max(1, round(job.installs * chance.uniform(*_INSTALLS_SPREAD)))
        gap_us = min(chance.randint(*_GAP_US), _RUN_MAX_US // (installs + 2))
        return JobRun(
            at_us=at_us,
            gap_us=gap_us,
            job=name,
            event_name=event_name,
            installs=installs,
            more=tuple(self._more(job, at_us, chance)),
        )

    def _more(self, job: JobEntry, at_us: int, chance: Random) -> Iterator[Verdict]:
        if chance.random() < self._profile.habits.blocked_share:
            yield chance.choice(self._blocklist[job.ecosystem])
        incident = self._profile.incident
        if incident.rule.ecosystem != job.ecosystem:
            return
        if self._breaks_out_us <= at_us < self._is_contained_us:
            yield self._outbreak
        is_unnoticed = self._begins_us <= at_us < self._breaks_out_us
        if is_unnoticed and chance.random() < incident.unnoticed_share:
            yield self._unnoticed


def _event(token: TokenEntry | None, chance: Random) -> str:
    """The event that started a run; unknown without a token."""
    return "" if token is None else chance.choice(token.events)


def hits(
    runs: Mapping[date, list[JobRun]], since: date, until: date, package: str | None = None
) -> int:
    """How many blocklist hits there were from `since` to `until`, inclusive.

    Of a `package`, all requests for it beside the lockfiles: also those that got through.
    """
    days = [since + timedelta(days=number) for number in range((until - since).days + 1)]
    return sum(
        asked_for.decision == Decision.BLOCKED if package is None else asked_for.package == package
        for day in days
        for run in runs.get(day, [])
        for asked_for in run.more
    )
