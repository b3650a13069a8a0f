"""The demo's history as a pure function of the profile, the instant and the ids."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analytics.model.instants import utc_day
from service.cli.demo.actors import Actors, Person, find_binding
from service.cli.demo.calendar import Calendar
from service.cli.demo.history import History
from service.cli.demo.profile import load_profile
from service.store.tables import ApiKey, Binding, Member, Origin
from tests.budgets import sample
from tests.service.cli.demo.conftest import INSTALLS

MONDAY = datetime(2026, 3, 2, 12, tzinfo=UTC)
PROFILE = load_profile()


def history_at(now: datetime) -> History:
    """The history up to `now` of members and keys with the profile's names, and no bindings."""
    calendar = Calendar(now)
    people = {
        name: Person(
            name,
            Member(
                id=f"mem_{name}",
                identity_provider=entry.identity_provider,
                created_at=calendar.instant(entry.joins) if entry.joins else calendar.opened_at,
                removed_at=calendar.instant(entry.leaves) if entry.leaves else None,
            ),
            entry,
        )
        for name, entry in PROFILE.members.items()
    }
    keys = {name: ApiKey(id=f"key_{name}", project_id=None) for name in PROFILE.keys}
    return History(PROFILE, calendar, Actors(people=people, keys=keys, bindings={}))


@sample(3)
@pytest.mark.parametrize("weekday", range(7))
def test_there_are_enough_rows_whatever_day_it_is(weekday: int):
    """Even just after midnight, when the last day is still empty."""
    midnight = datetime(2026, 3, 2, tzinfo=UTC) + timedelta(days=weekday)

    assert history_at(midnight).rows >= 200_000


def test_the_same_instant_gives_the_same_rows():
    first, second = history_at(MONDAY), history_at(MONDAY)

    assert first.rows == second.rows
    for number in (0, 45, 68, 89):
        assert first.table(first.days[number]).equals(second.table(second.days[number]))


def test_a_later_hour_only_adds_rows():
    morning, evening = history_at(MONDAY), history_at(MONDAY + timedelta(hours=6))

    assert morning.table(morning.days[70]).equals(evening.table(evening.days[70]))
    assert evening.days[-1].runs[: len(morning.days[-1].runs)] == morning.days[-1].runs
    assert len(evening.days[-1].runs) > len(morning.days[-1].runs)


def test_installs_name_file_and_client():
    history, names = history_at(MONDAY), ("ecosystem", "package_name", "file_name", "file_sha256")
    days = [history.table(day) for day in history.days[-22:-2]]
    rows = pa.concat_tables(days).select(["event", "client", *names]).to_pylist()
    installs = [row for row in rows if row["event"] in INSTALLS]
    files = {tuple(row[name] for name in names) for row in installs}

    assert len(installs) > 10_000
    assert all(row["file_name"] and row["file_sha256"] and row["client"] for row in installs)
    assert len({file[-1] for file in files}) == len({file[:3] for file in files}) == len(files)
    assert {row["client"] for row in rows if row["event"] not in INSTALLS} == {None}


@pytest.mark.parametrize("clock", ["00:00:00", "08:30:00.5", "12:24:00", "23:59:59.999999"])
def test_no_row_is_later_than_now(clock: str):
    now = datetime.fromisoformat(f"2026-03-04T{clock}+00:00")
    history = history_at(now)
    today = history.table(history.days[-1])

    assert history.days[-1].day == utc_day(now)
    if today.num_rows:
        assert pc.max(today["received_at"]).as_py() <= now


@pytest.mark.parametrize("day", range(14))
def test_every_moment_of_the_profile_is_past_whatever_day_it_is(day: int):
    """Moments are counted in working days, of which 90 days have at least 64."""
    calendar = Calendar(datetime(2026, 3, 2, tzinfo=UTC) + timedelta(days=day))

    assert len(calendar.workdays) >= 64
    assert calendar.days[0] <= calendar.workdays[0]
    assert calendar.workdays[61] < calendar.days[-1]
    incident = calendar.instant(PROFILE.incident)
    assert timedelta(days=19) < calendar.now - incident < timedelta(days=24)


def at(minute: int) -> datetime:
    return MONDAY + timedelta(minutes=minute)


def trust(binding_id: str, **changes: object) -> Binding:
    """A binding of the organisation that admits any event, always."""
    fields = {"origin": Origin.ORG_ADMIN, "event_names": [], "added_at": at(0)} | changes
    return Binding(id=binding_id, **fields)


@pytest.mark.parametrize(
    ("bindings", "attributed_to"),
    [
        ([trust("org")], "org"),
        ([trust("org", revoked_at=at(100))], None),
        ([trust("org", added_at=at(101))], None),
        ([trust("org", event_names=["release"])], None),
        ([trust("org", project_id="another")], None),
        ([trust("org"), trust("project", project_id="mine")], "project"),
        ([trust("org"), trust("team", origin=Origin.TEAM_ADMIN)], "team"),
        ([trust("team", origin=Origin.TEAM_ADMIN)], None),
        ([trust("org", revoked_at=at(50)), trust("team", origin=Origin.TEAM_ADMIN)], None),
    ],
)
def test_a_request_is_attributed_to_the_narrowest_active_binding(
    bindings: list[Binding], attributed_to: str | None
):
    found = find_binding(bindings, "push", "mine", at(100))

    assert (found.id if found else None) == attributed_to
