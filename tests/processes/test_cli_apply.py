"""`countersign apply`: organisations as a file. What it declares is tested at the endpoint."""

import pytest

from tests.processes.command_line import Ran
from tests.processes.homes import Home

pytestmark = pytest.mark.slow


def applied(home: Home, text: str) -> Ran:
    """`apply` of a file with `text`."""
    file = home.folder / "orgs.toml"
    file.write_text(text)
    return home.order("apply", str(file), "--json")


def test_a_file_is_applied_once(home: Home) -> None:
    text = '[orgs.acme]\nprojects = ["payments"]\npolicy.cooldown.min_age_days = 7\n'
    first, second = applied(home, text), applied(home, text)

    assert first.json == {"changes": ["project_created", "policy_changed"]}
    assert (second.code, second.json) == (0, {"changes": []})


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("[orgs.acme", "orgs.toml: Expected ']'"),
        ("\xff", "orgs.toml: "),
        ('[orgs.acme]\ntier = "gold"', "orgs.toml: orgs.acme: tier must be one of"),
        ("[orgs.acme]\ntier = 2026-01-01", "orgs.toml: orgs.acme: tier must be one of"),
    ],
)
def test_a_refusal_names_the_file_and_the_place(quiet_home: Home, text: str, refusal: str) -> None:
    ran = applied(quiet_home, text)

    assert ran.code == 1
    assert ran.refusal.startswith(refusal)
