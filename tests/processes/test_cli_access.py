"""`countersign access report`: the report of the API, at the command line."""

import csv

import pytest

pytestmark = pytest.mark.slow


def test_the_report_is_for_people_scripts_and_spreadsheets(quiet_home):
    quiet_home.ask(
        *("member", "add", "--org", "acme", "ada@acme.example"),
        *("--role", "auditor", "--idp", "google"),
    )
    quiet_home.ask("apikey", "issue", "--org", "acme", "--name", "siem", "--scope", "audit:r")
    report = ("access", "report", "--org", "acme")
    (member,) = quiet_home.ask(*report)["members"]
    said = quiet_home.order(*report).out
    rows = list(csv.DictReader(quiet_home.order(*report, "--csv").out.splitlines()))

    assert member["capabilities"] == ["audit:r", "audit:export", "alert:w"]
    assert "ada@acme.example" in said
    assert "auditor may: audit:r audit:export alert:w" in said
    assert "(siem) may audit:r in the whole organisation" in said
    assert "the operator (at the command line" in said
    assert [row["name"] for row in rows if row["kind"] == "member"] == ["ada@acme.example"]


@pytest.mark.parametrize(
    ("as_of", "text"),
    [
        ("2999-01-01", "--as-of must not be in the future"),
        ("2001-01-01", "--as-of is before the organisation was created"),
        ("9000d", "--as-of is before the organisation was created"),
    ],
)
def test_a_date_without_a_report_is_refused(quiet_home, as_of, text):
    ran = quiet_home.order("access", "report", "--org", "acme", "--as-of", as_of)

    assert ran.code == 1
    assert text in ran.refusal


def test_a_date_that_is_none_is_a_wrong_usage(quiet_home):
    ran = quiet_home.order("access", "report", "--org", "acme", "--as-of", "soon")

    assert ran.code == 2
    assert "no instant" in ran.err
