"""The demo's rows about people: sign-ins, sign-outs and exports."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Final

from analytics.export.formats import ExportFormat
from analytics.model.events import Envelope
from analytics.model.instants import midnight
from analytics.model.log_envelopes import AuditExported, AuditExportFinished
from analytics.model.org_envelopes import (
    LinkSignInSucceeded,
    OauthLoginSucceeded,
    PasskeyAuthenticationSucceeded,
    PasskeyRegistered,
    SignedOut,
    SignInFailed,
)
from analytics.model.rows import AuditContext, AuditRow, VerdictSource, audit_row
from service.cli.demo.actors import Actors, Person
from service.cli.demo.calendar import (
    Calendar,
    drawn_id,
    drawn_request_id,
    is_workday,
    seeded,
    to_us,
)
from service.cli.demo.profile import Networks, Profile
from service.cli.demo.runs import JobRun, hits

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
            return _row(envelope, person, at, chance, address, subject=person.member_id)

        if chance.random() < _FAILURE_SHARE:
            yield row(chance.choice(_FAILURES), at - timedelta(seconds=chance.uniform(8, 90)))
        yield row(self._sign_in(person, chance), at)
        if person.has_passkey and person.name not in self._credentials:
            credential = drawn_id(chance, "cred")
            self._credentials[person.name] = credential
            registered = PasskeyRegistered(member_id=person.member_id, credential_id=credential)
            yield row(registered, at + timedelta(seconds=chance.uniform(60, 400)))
        if chance.random() < _SIGN_OUT_SHARE:
            left = SignedOut(member_id=person.member_id, session_id=drawn_id(chance, "sess"))
            yield row(left, at + timedelta(hours=chance.uniform(2, 9)))

    def _sign_in(self, person: Person, chance: Random) -> Envelope:
        """Usually with the passkey once there is one; the first time always with the provider."""
        is_new = person.name not in self._joined
        self._joined.add(person.name)
        credential = self._credentials.get(person.name)
        if credential is not None and chance.random() < _PASSKEY_SHARE:
            self._counters[credential] += 1
            return PasskeyAuthenticationSucceeded(
                member_id=person.member_id,
                credential_id=credential,
                counter_before=self._counters[credential] - 1,
                counter_after=self._counters[credential],
            )
        if not is_new and chance.random() < _LINK_SHARE:
            return LinkSignInSucceeded(member_id=person.member_id)
        return OauthLoginSucceeded(
            member_id=person.member_id, is_new_member=is_new, provider=person.identity_provider
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
