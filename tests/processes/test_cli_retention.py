"""`countersign org hold|release` and `audit prune`: who keeps what, at the command line."""

import fcntl
from datetime import timedelta

import pytest

from service.app.composition import Services
from service.core.clock import utc_now
from service.orgs.organisations import create_org
from service.store.journal import append
from service.store.organisations import get_org
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import BY_OPERATOR
from tests.other_programs import execute
from tests.processes.homes import PLATFORM, Home, eventually

pytestmark = pytest.mark.slow

REFUSED, WRONG_USAGE, UNAVAILABLE = 1, 2, 3


def hold_of(home: Home) -> tuple:
    """What `org list` says of acme's hold."""
    (acme,) = home.listed("org", "list")
    return acme["held_since"], acme["held_reason"]


def hold_rows(home: Home) -> list[dict]:
    return home.ask("audit", "query", "--org", "acme", "--event", "legal_hold_changed")["entries"]


def test_a_hold_is_listed_until_it_is_released(home):
    assert hold_of(home) == (None, None)

    held = home.ask("org", "hold", "acme", "--reason", "case [4711]")
    assert held == {
        "slug": "acme",
        "held_since": hold_of(home)[0],
        "held_reason": "case [4711]",
    }
    assert "case [4711]" in home.order("org", "list").out
    released = home.ask("org", "release", "acme", "--reason", "settled")
    assert released == {"slug": "acme", "held_since": None, "held_reason": None}

    assert hold_of(home) == (None, None)
    lifted, was_set = hold_rows(home)
    assert was_set["payload"] == {"held": True, "reason": "case [4711]"}
    assert lifted["payload"] == {"held": False, "reason": "settled"}
    assert (lifted["actor"], lifted["actor_tenant_id"]) == ("system:cli", PLATFORM)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["org", "hold", "missing", "--reason", "case"], "Org not found"),
        (["org", "hold", "acme", "--reason", ""], "a legal hold needs a reason"),
        (["org", "hold", "acme", "--reason", "a\nb"], "reason must be at most 1024 chars"),
        (["org", "release", "missing"], "Org not found"),
    ],
)
def test_a_hold_that_cannot_be_meant_is_refused(quiet_home, words, refusal):
    ran = quiet_home.order(*words)

    assert ran.code == REFUSED
    assert ran.refusal.startswith(refusal)
    assert hold_of(quiet_home) == (None, None)


def test_a_hold_without_a_reason_is_wrong_usage(quiet_home):
    assert quiet_home.order("org", "hold", "acme").code == WRONG_USAGE


def test_a_file_sets_a_hold_and_lifts_none(home):
    """A line that was lost must not be what lets history go."""
    file = home.folder / "orgs.toml"
    file.write_text('[orgs.acme]\nlegal_hold = "case 4711"\n')
    assert home.ask("apply", str(file)) == {"changes": ["legal_hold_changed"]}
    assert home.ask("apply", str(file)) == {"changes": []}

    file.write_text("[orgs.acme]\n")
    assert home.ask("apply", str(file)) == {"changes": []}

    assert hold_of(home)[1] == "case 4711"


def test_a_file_with_an_empty_hold_is_refused(quiet_home):
    """It could be taken for the end of one."""
    file = quiet_home.folder / "orgs.toml"
    file.write_text('[orgs.acme]\nlegal_hold = ""\n')

    ran = quiet_home.order("apply", str(file))

    assert ran.code == REFUSED
    assert ran.refusal == "orgs.toml: orgs.acme: a legal hold needs a reason"


OLD = utc_now().replace(hour=12) - timedelta(days=500)


async def add_past(services: Services) -> None:
    """Two days of acme's and one of other's that are past retention, 3 rows each."""
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        other = await create_org(work, "other", "free", BY_OPERATOR)
        for org, days in ((acme, (0, 1)), (other, (0,))):
            rows = [sample_row(OLD + timedelta(days=day)) for day in days for _ in range(3)]
            await append(work.session, org.id, rows, now=work.now)


@pytest.fixture
def past_home(home) -> Home:
    home.change(add_past)
    return home


def last_run(home: Home, value: str | None = None) -> str:
    """The recorded instant of the last run; set to `value` first, if given."""
    if value is not None:
        execute(home.data_dir, "UPDATE facts SET value = ? WHERE name = 'pruner_clock'", [value])
    ((recorded,),) = execute(home.data_dir, "SELECT value FROM facts WHERE name = 'pruner_clock'")
    return str(recorded)


def stored(home: Home) -> dict[str, int]:
    return {line["org"]: line["days"] for line in home.ask("audit", "stats")["organisations"]}


DAYS = [str((OLD + timedelta(days=day)).date()) for day in (0, 1)]
BOTH = [
    {"org": "acme", "held": False, "days": DAYS, "rows": 6},
    {"org": "other", "held": False, "days": DAYS[:1], "rows": 3},
]


def test_a_dry_run_says_what_would_go_and_a_run_drops_it(past_home):
    before = stored(past_home), last_run(past_home)

    dry = past_home.ask("audit", "prune", "--dry-run")
    assert dry == {"dry_run": True, "days": 3, "rows": 9, "orgs": BOTH}
    assert "Would drop 9 rows of 3 days." in past_home.order("audit", "prune", "--dry-run").out
    assert (stored(past_home), last_run(past_home)) == before

    assert past_home.ask("audit", "prune") == dry | {"dry_run": False}
    assert stored(past_home) == {"acme": 1, "other": 1}
    assert last_run(past_home) > before[1]
    assert "Dropped 0 rows of 0 days." in past_home.order("audit", "prune").out
    (row,) = past_home.ask("audit", "query", "--org", "acme", "--event", "audit_pruned")["entries"]
    assert (row["actor"], row["verdict_source"]) == ("system:cli", "cli")
    assert (row["payload"]["days"], row["payload"]["rows"]) == (DAYS, 6)


def test_what_is_held_is_shown_and_kept(past_home):
    past_home.ask("org", "hold", "acme", "--reason", "case 4711")

    said = past_home.order("audit", "prune", "--dry-run")
    assert "kept" in said.out
    assert "Would drop 3 rows of 1 days." in said.out
    answer = past_home.ask("audit", "prune")

    assert answer["orgs"] == [BOTH[0] | {"held": True}, BOTH[1]]
    assert (answer["days"], answer["rows"]) == (1, 3)
    assert stored(past_home) == {"acme": 3, "other": 1}


def test_one_organisation_alone_can_be_pruned(past_home):
    assert past_home.ask("audit", "prune", "--org", "other")["orgs"] == BOTH[1:]
    assert stored(past_home) == {"acme": 3, "other": 1}

    ran = past_home.order("audit", "prune", "--org", "missing")
    assert (ran.code, ran.refusal) == (REFUSED, "Org not found")


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_a_clock_that_may_have_stepped_is_refused_in_one_line(past_home, flags):
    days_ago = last_run(past_home, f"{utc_now() - timedelta(hours=49):%Y-%m-%dT%H:%M:%S.%fZ}")
    before = stored(past_home)

    ran = past_home.order("audit", "prune", *flags)

    assert ran.code == REFUSED
    refused = past_home.ask("audit", "stats")["prune_refused"]
    assert refused == {"reason": "late", "text": refused["text"]}
    assert "over 48 hours past the last pruning run" in refused["text"]
    assert "Pruning is refused: the clock says" in past_home.order("audit", "stats").out
    assert "if it is right, run `countersign audit prune --accept-clock`" in ran.refusal
    assert days_ago[:23] in ran.refusal
    assert (stored(past_home), last_run(past_home)) == (before, days_ago)
    assert past_home.ask("audit", "prune", "--accept-clock", *flags)["rows"] == 9
    assert (last_run(past_home) > days_ago) is (flags == ())
    assert (past_home.ask("audit", "stats")["prune_refused"] is None) is (flags == ())


def test_pruning_while_another_process_changes_segments_is_exit_code_3(past_home):
    """Trying again helps; a dry run needs no lease."""
    with (past_home.data_dir / "segments.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = past_home.order("audit", "prune", "--wait", "0")
        assert past_home.ask("audit", "prune", "--dry-run")["rows"] == 9

    assert ran.code == UNAVAILABLE
    assert past_home.ask("audit", "prune")["rows"] == 9


@only_full
def test_a_server_prunes_by_itself_and_says_when_it_does_not(past_home):
    last_run(past_home, "2020-01-01T00:00:00.000000Z")
    server = past_home.serve()

    def refused() -> list[dict]:
        return [line for line in server.log_lines() if line["event"] == "prune_refused"]

    (line,) = eventually(refused, "prune_refused in the log")
    assert line["last_run_at"] == "2020-01-01T00:00:00.000Z"
    assert "exception" not in line
    assert stored(past_home)["acme"] == 3
    assert server.stop() == 0

    last_run(past_home, f"{utc_now():%Y-%m-%dT%H:%M:%S.%fZ}")
    past_home.serve()
    eventually(lambda: stored(past_home) == {"acme": 1, "other": 1}, "past days dropped")
