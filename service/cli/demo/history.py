"""The demo's history: which rows each day has, and those rows as Arrow tables. Pure."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from analytics.export.formats import ExportFormat
from analytics.model.decision_reason import compact
from analytics.model.envelopes import Admission, InstallAllowed, OssFirstParty, VerifiedCi
from analytics.model.events import Envelope, Event
from analytics.model.instants import midnight, utc_day
from analytics.model.log_envelopes import AuditExported, AuditExportFinished
from analytics.model.org_envelopes import (
    LinkSignInSucceeded,
    OauthLoginSucceeded,
    PasskeyAuthenticationSucceeded,
    PasskeyRegistered,
    SignedOut,
    SignInFailed,
)
from analytics.model.rows import (
    AuditContext,
    AuditRow,
    FileColumns,
    VerdictSource,
    audit_row,
    ci_columns,
)
from analytics.model.schema import JOURNAL_SCHEMA, to_table
from service.ci.verifier.codes import FailureCode
from service.ci.verifier.rejections import TokenRejection
from service.cli.demo.actors import Actors, Person, find_binding, rejection_detail
from service.cli.demo.calendar import (
    Calendar,
    drawn_id,
    drawn_request_id,
    from_us,
    is_workday,
    seeded,
    to_us,
)
from service.cli.demo.packages import Package, Verdict, open_markets
from service.cli.demo.profile import EcosystemName, JobEntry, Networks, Profile, TokenEntry
from service.cli.demo.runs import RECEIVED_WITHIN_US, JobRun, RunPlanner, hits
from service.store.tables import Binding

_AT_WORK_SHARE: Final = 0.62
_ON_CALL_SHARE: Final = 0.05
_FAILURE_SHARE: Final = 0.06
_PASSKEY_SHARE: Final = 0.85
_LINK_SHARE: Final = 0.07
_SIGN_OUT_SHARE: Final = 0.45
_HOME_SHARE: Final = 0.3
_FAILURES: Final = (
    SignInFailed(method="oauth", reason="the identity provider refused"),
    SignInFailed(method="oauth", reason="state does not match"),
    SignInFailed(method="passkey", reason="user verification failed"),
    SignInFailed(method="link", reason="used up or expired"),
)
_BYTES_PER_ROW: Final = 640

SIGN_INS: Final = frozenset(
    {
        LinkSignInSucceeded.event,
        OauthLoginSucceeded.event,
        PasskeyAuthenticationSucceeded.event,
    }
)
"""The events of successful sign-ins."""


@dataclass(slots=True)
class SignIns:
    """Draws the sign-ins of consecutive days; passkey counters increase by one."""

    profile: Profile
    calendar: Calendar
    actors: Actors
    _credentials: dict[str, str] = field(default_factory=dict)
    _counters: Counter[str] = field(default_factory=Counter)
    _joined: set[str] = field(default_factory=set)

    def rows_of(self, day: date) -> list[AuditRow]:
        """The rows of `day` up to `now`."""
        chance = seeded(self.profile.seed, "people", self.calendar.days.index(day))
        share = _AT_WORK_SHARE if is_workday(day) else _ON_CALL_SHARE
        rows: list[AuditRow] = []
        for person in self.actors.people.values():
            at = midnight(day) + timedelta(hours=chance.gauss(8.4, 1.1))
            is_in = chance.random() < share
            visit = list(self._visit(person, at, chance)) if is_in and person.is_present(at) else []
            rows += [row for row in visit if person.is_present(row.created_at)]
        return [row for row in rows if row.created_at <= self.calendar.now]

    def _visit(self, person: Person, at: datetime, chance: Random) -> Iterator[AuditRow]:
        """One day of `person` at the dashboard."""
        address = _address(self.profile.networks, person, chance)

        def row(envelope: Envelope, at: datetime) -> AuditRow:
            return _row(envelope, person, at, chance, address, subject=person.member.id)

        if chance.random() < _FAILURE_SHARE:
            yield row(chance.choice(_FAILURES), at - timedelta(seconds=chance.uniform(8, 90)))
        yield row(self._sign_in(person, chance), at)
        if person.profile.has_passkey and person.name not in self._credentials:
            credential = drawn_id(chance, "cred")
            self._credentials[person.name] = credential
            registered = PasskeyRegistered(member_id=person.member.id, credential_id=credential)
            yield row(registered, at + timedelta(seconds=chance.uniform(60, 400)))
        if chance.random() < _SIGN_OUT_SHARE:
            left = SignedOut(member_id=person.member.id, session_id=drawn_id(chance, "sess"))
            yield row(left, at + timedelta(hours=chance.uniform(2, 9)))

    def _sign_in(self, person: Person, chance: Random) -> Envelope:
        """Usually with the passkey once there is one; the first time always with the provider."""
        is_new = person.name not in self._joined
        self._joined.add(person.name)
        credential = self._credentials.get(person.name)
        if credential is not None and chance.random() < _PASSKEY_SHARE:
            self._counters[credential] += 1
            return PasskeyAuthenticationSucceeded(
                member_id=person.member.id,
                credential_id=credential,
                counter_before=self._counters[credential] - 1,
                counter_after=self._counters[credential],
            )
        if not is_new and chance.random() < _LINK_SHARE:
            return LinkSignInSucceeded(member_id=person.member.id)
        return OauthLoginSucceeded(
            member_id=person.member.id,
            is_new_member=is_new,
            provider=person.profile.identity_provider,
        )


def exports(
    profile: Profile, calendar: Calendar, actors: Actors, runs: Mapping[date, list[JobRun]]
) -> list[AuditRow]:
    """Each Monday the week's blocklist hits; after the incident its hits. Counts are correct."""
    chance = seeded(profile.seed, "exports")
    rows: list[AuditRow] = []
    mondays = [day for day in calendar.days[7:] if day.weekday() == 0]
    for number, monday in enumerate(mondays):
        person = actors.people[profile.habits.exporters[number % len(profile.habits.exporters)]]
        since, until = monday - timedelta(days=7), monday - timedelta(days=1)
        filters = _filters(since, until, event="blocklist_hit")
        at = midnight(monday) + timedelta(hours=chance.uniform(9, 11))
        rows += _export(profile, person, at, filters, hits(runs, since, until), chance)
    incident = profile.incident
    day = calendar.workdays[incident.workday]
    package = incident.rule.package
    filters = _filters(day, day, package=package)
    at = midnight(calendar.workdays[incident.workday + 1]) + timedelta(hours=8.7)
    person = actors.people[profile.habits.exporters[0]]
    rows += _export(profile, person, at, filters, hits(runs, day, day, package), chance)
    return [row for row in rows if row.created_at <= calendar.now]


def _export(
    profile: Profile,
    person: Person,
    at: datetime,
    filters: dict[str, list[str]],
    rows: int,
    chance: Random,
) -> list[AuditRow]:
    """The two rows of one export."""
    address = f"{profile.networks.office}.{chance.randint(10, 40)}"
    export_id = drawn_id(chance, "exp")
    begun = AuditExported(
        export_id=export_id, format=ExportFormat.CSV.value, filters=filters, rows=rows
    )
    finished = AuditExportFinished(
        export_id=export_id,
        complete=True,
        rows=rows,
        bytes=rows * _BYTES_PER_ROW + chance.randint(200, 400),
        sha256=sha256(export_id.encode()).hexdigest(),
    )
    first = _row(begun, person, at, chance, address)
    audit_context = _audit_context(person, first.request_id, address)
    return [
        first,
        audit_row(finished, audit_context, at + timedelta(seconds=chance.uniform(0.2, 1.5))),
    ]


def _filters(since: date, until: date, **terms: str) -> dict[str, list[str]]:
    """The filters of an export as its row holds them (`Query.given`)."""
    given = terms | {"since": since.isoformat(), "until": until.isoformat()}
    return {name: [value] for name, value in sorted(given.items())}


def _row(
    envelope: Envelope,
    person: Person,
    at: datetime,
    chance: Random,
    address: str,
    subject: str | None = None,
) -> AuditRow:
    request_id = drawn_request_id(chance, to_us(at))
    return audit_row(envelope, _audit_context(person, request_id, address), at, subject=subject)


def _audit_context(person: Person, request_id: str | None, address: str) -> AuditContext:
    return AuditContext(
        actor=person.actor,
        actor_source="session",
        verdict_source=VerdictSource.DASHBOARD,
        request_id=request_id,
        source_ip=address,
    )


def _address(networks: Networks, person: Person, chance: Random) -> str:
    """An address of the office, or the member's own at home."""
    if chance.random() < _HOME_SHARE:
        return f"{networks.home}.{seeded(0, person.name).randint(2, 250)}"
    return f"{networks.office}.{chance.randint(10, 40)}"


_REGISTRIES: Final[dict[EcosystemName, str]] = {
    "npm": "https://registry.npmjs.org/",
    "pypi": "https://pypi.org/simple/",
}
_CLIENTS: Final[dict[EcosystemName, str]] = {"npm": "npm/11.19.1", "pypi": "uv/0.13.9"}
_RUN_IDS_FROM: Final = 14_000_000_000
_RUNNERS: Final = (11, 58)  # the last number of an address in a job's network


@dataclass(frozen=True, slots=True)
class Day:
    """What happened on one day: runs, and rows about people."""

    day: date
    number: int
    runs: list[JobRun]
    others: list[AuditRow]

    @property
    def rows(self) -> int:
        """How many audit rows the day has."""
        return sum(run.rows for run in self.runs) + len(self.others)


class History:
    """90 days of rows, always the same for the same profile, calendar and actors."""

    def __init__(self, profile: Profile, calendar: Calendar, actors: Actors) -> None:
        self._profile = profile
        self._calendar = calendar
        self._actors = actors
        markets = open_markets(profile, calendar)
        self._lockfiles: Mapping[str, list[Package]] = {
            name: markets[job.ecosystem].lockfile(
                seeded(profile.seed, "lockfile", name), job.lockfile_size
            )
            for name, job in profile.jobs.items()
        }
        self.days = self._plan()
        self.rows = sum(day.rows for day in self.days)

    def usage(self) -> Mapping[str, tuple[int, int]]:
        """Binding id to the number of its requests, and when the last one was (µs)."""
        uses: Counter[str] = Counter()
        last_us: dict[str, int] = {}
        for run in (run for day in self.days for run in day.runs):
            binding = self._binding(run)
            if binding is not None:
                uses[binding.id] += 1
                last_us[binding.id] = run.at_us
        return {binding_id: (uses[binding_id], last_us[binding_id]) for binding_id in uses}

    def last_sign_ins(self) -> Mapping[str, datetime]:
        """Member id to the time of their last sign-in, of those who signed in."""
        return {
            row.subject: row.created_at
            for day in self.days
            for row in sorted(day.others, key=lambda row: row.created_at)
            if row.event in SIGN_INS and row.subject is not None
        }

    def last_uses(self) -> Mapping[str, datetime]:
        """The time of the last request of each key, by the key's name."""
        jobs = self._profile.jobs
        return {
            jobs[run.job].key: from_us(run.at_us)
            for day in self.days
            for run in sorted(day.runs, key=lambda run: run.at_us)
        }

    def rejections(self, tenant_id: str) -> Iterator[TokenRejection]:
        """Each rejected request: its token was genuine, but no binding matched."""
        for run in (run for day in self.days for run in day.runs):
            job = self._profile.jobs[run.job]
            if job.token is not None and self._binding(run) is None:
                yield self._rejection(tenant_id, run, job, job.token)

    def table(self, day: Day) -> pa.Table:
        """The rows of `day` as JOURNAL_SCHEMA, in no order."""
        chance = seeded(self._profile.seed, "rows", day.number)
        columns: dict[str, list[Any]] = {name: [] for name in JOURNAL_SCHEMA.names}
        for run in day.runs:
            self._write_run(columns, run, chance)
        return pa.concat_tables([_to_arrow(columns), to_table(day.others)])

    def _plan(self) -> list[Day]:
        planner = RunPlanner(self._profile, self._calendar)
        runs = {day: planner.runs_of(day) for day in self._calendar.days}
        sign_ins = SignIns(self._profile, self._calendar, self._actors)
        others = {day: sign_ins.rows_of(day) for day in self._calendar.days}
        for row in exports(self._profile, self._calendar, self._actors, runs):
            others[utc_day(row.created_at)].append(row)
        return [
            Day(day, number, runs[day], others[day])
            for number, day in enumerate(self._calendar.days)
        ]

    def _binding(self, run: JobRun) -> Binding | None:
        """The binding that the rows of `run` name."""
        job = self._profile.jobs[run.job]
        if job.token is None:
            return None
        bindings = self._actors.bindings.get(job.token.sub, [])
        key = self._actors.keys[job.key]
        return find_binding(bindings, run.event_name, key.project_id, from_us(run.at_us))

    def _rejection(
        self, tenant_id: str, run: JobRun, job: JobEntry, token: TokenEntry
    ) -> TokenRejection:
        project_id = self._actors.keys[job.key].project_id
        bindings, at = self._actors.bindings.get(token.sub, []), from_us(run.at_us)
        return TokenRejection(
            tenant_id=tenant_id,
            is_verified=True,
            code=FailureCode.UNBOUND_OIDC_SUBJECT,
            detail=rejection_detail(bindings, project_id, at),
            issuer=self._profile.issuer,
            sub=token.sub,
            repository_id=self._profile.repositories[token.repository],
            event_name=run.event_name,
            owner=token.repository.partition("/")[0],
            project_id=project_id,
            request_id=self._request_id(run),
            at=at,
        )

    def _request_id(self, run: JobRun) -> str:
        chance = seeded(self._profile.seed, "request", run.job, run.at_us)
        return drawn_request_id(chance, run.at_us)

    def _write_run(self, columns: dict[str, list[Any]], run: JobRun, chance: Random) -> None:
        """Add the rows of `run`: their common columns, and a verdict for each."""
        job = self._profile.jobs[run.job]
        binding = self._binding(run)
        verdicts = self._verdicts(run, chance)
        count = len(verdicts)
        starts = (run.at_us + number * run.gap_us for number in range(count))
        created = [start + chance.randrange(run.gap_us) for start in starts]
        columns["created_at"] += created
        columns["received_at"] += [
            at + chance.randrange(1_000, RECEIVED_WITHIN_US) for at in created
        ]
        common = self._common(run, job, binding, chance)
        ci = self._ci(run, job.token, chance) if binding and job.token else None
        common |= ci_columns(ci)._asdict()
        for name, value in common.items():
            columns[name] += [value] * count
        columns["event"] += [verdict.event for verdict in verdicts]
        columns["package_name"] += [verdict.package for verdict in verdicts]
        columns["version"] += [verdict.version for verdict in verdicts]
        columns["decision"] += [verdict.decision for verdict in verdicts]
        columns["decision_reason"] += [verdict.decision_reason for verdict in verdicts]
        columns["payload"] += self._payloads(verdicts, run, job.ecosystem, ci)
        files = [_file_of(job.ecosystem, each.package, each.version) for each in verdicts]
        for place, name in enumerate(FileColumns._fields):
            columns[name] += [file[place] for file in files]

    def _verdicts(self, run: JobRun, chance: Random) -> list[Verdict]:
        packages = chance.sample(self._lockfiles[run.job], run.installs)
        verdicts = [package.asked_for(run.at_us, chance.random()) for package in packages]
        for asked_for in run.more:
            verdicts.insert(chance.randint(0, len(verdicts)), asked_for)
        return verdicts

    def _common(
        self, run: JobRun, job: JobEntry, binding: Binding | None, chance: Random
    ) -> dict[str, str | None]:
        """The columns that are equal in all rows of one request."""
        network = getattr(self._profile.networks, job.network)
        return {
            "verdict_source": VerdictSource.PROXY.value,
            "actor_tenant_id": None,
            "actor": self._actors.keys[job.key].id,
            "actor_source": "api_key" if binding is None else "oidc_github",
            "subject": job.token.sub if binding and job.token else None,
            "oidc_binding_id": None if binding is None else binding.id,
            "request_id": self._request_id(run),
            "source_ip": f"{network}.{chance.randint(*_RUNNERS)}",
            "ecosystem": job.ecosystem,
        }

    def _payloads(
        self,
        verdicts: list[Verdict],
        run: JobRun,
        ecosystem: EcosystemName,
        ci: VerifiedCi | None,
    ) -> list[str]:
        """The envelopes, with a verified token's claims, and what installs were admitted by."""
        is_after_incident = run.at_us >= to_us(self._calendar.instant(self._profile.incident))
        own = self._profile.ecosystems[ecosystem].registry
        registries = {InstallAllowed.event: _REGISTRIES[ecosystem], OssFirstParty.event: own}
        known: dict[str, str] = {}
        for verdict in {verdict.payload: verdict for verdict in verdicts}.values():
            keys: dict[str, Any] = (
                {**verdict.envelope} if ci is None else {**verdict.envelope, "ci": ci}
            )
            if verdict.event in registries:
                keys["admission"] = Admission(
                    registry=registries[Event(verdict.event)],
                    policy_revision=2 if is_after_incident else 1,
                    blocklist_generation=0,
                )
            known[verdict.payload] = compact(keys)
        return [known[verdict.payload] for verdict in verdicts]

    def _ci(self, run: JobRun, token: TokenEntry, chance: Random) -> VerifiedCi:
        """The claims of a verified request's token."""
        began_us = to_us(self._calendar.opened_at)
        return VerifiedCi(
            sub=token.sub,
            repository_id=self._profile.repositories[token.repository],
            event_name=run.event_name,
            run_id=str(_RUN_IDS_FROM + (run.at_us - began_us) // 100_000),
            jti=str(UUID(int=chance.getrandbits(128))),
        )


def _to_arrow(columns: dict[str, list[Any]]) -> pa.Table:
    """`columns` as JOURNAL_SCHEMA; instants are given in microseconds."""
    return pa.table(
        {
            field.name: pa.array(
                columns[field.name], pa.int64() if pa.types.is_timestamp(field.type) else field.type
            ).cast(field.type)
            for field in JOURNAL_SCHEMA
        },
        schema=JOURNAL_SCHEMA,
    )


@lru_cache(maxsize=10_000)
def _file_of(ecosystem: EcosystemName, package: str, version: str) -> FileColumns:
    """The file of a release: its name by the registry's convention, with a made-up digest."""
    if ecosystem == "npm":
        name = f"{package.rpartition('/')[2]}-{version}.tgz"
    else:
        name = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    digest = hashlib.sha256(f"{ecosystem}/{package}/{version}".encode()).hexdigest()
    return FileColumns(name, digest, _CLIENTS[ecosystem])
