"""`countersign org hold|release` and `audit prune`: who keeps what, at the command line."""

import pytest

from tests.processes.homes import PLATFORM, Home

pytestmark = pytest.mark.slow

REFUSED, WRONG_USAGE, UNAVAILABLE = 1, 2, 3


def hold_of(home: Home) -> tuple:
    """What `org list` says of acme's hold."""
    (acme,) = home.ask("org", "list")
    return acme["held_since"], acme["held_reason"]


def hold_rows(home: Home) -> list[dict]:
    return home.ask("audit", "query", "--org", "acme", "--event", "legal_hold_changed")["entries"]


def test_a_hold_is_listed_until_it_is_released(home):
    """With since when and why; the audit log keeps both."""
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
        (["org", "hold", "nobody", "--reason", "case"], "Org not found"),
        (["org", "hold", "acme", "--reason", ""], "a legal hold needs a reason that can be read"),
        (["org", "hold", "acme", "--reason", "a\nb"], "reason must be at most 1024 chars"),
        (["org", "release", "nobody"], "Org not found"),
    ],
)
def test_a_hold_that_cannot_be_meant_is_refused(quiet_home, words, refusal):
    """In one line, and nothing is held."""
    ran = quiet_home.order(*words)

    assert ran.code == REFUSED
    assert ran.refusal.startswith(refusal)
    assert hold_of(quiet_home) == (None, None)


def test_a_hold_without_a_reason_is_wrong_usage(quiet_home):
    """The option is not optional."""
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
    assert ran.refusal == "orgs.toml: orgs.acme: a legal hold needs a reason that can be read"
