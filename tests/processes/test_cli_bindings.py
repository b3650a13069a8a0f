"""`countersign bindings`: one repository in every organisation, and limits by name."""

import pytest

from service.core.settings import REPOSITORY
from tests.conftest import ISSUER
from tests.processes.terminals import at_a_terminal

pytestmark = pytest.mark.slow

ADD = ("bindings", "add", "--org", "acme", "--issuer", ISSUER)
GITLAB = "https://gitlab.com"
LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture
def revoked(home) -> str:
    """The id of a binding of repository 42 that was revoked."""
    binding_id = home.ask(*ADD, "--sub", "repo:acme/old", "--repository-id", "42")["id"]
    home.ask("bindings", "revoke", "--org", "acme", binding_id)
    return binding_id


@pytest.fixture
def active(home) -> str:
    """The id of a binding of repository 42."""
    return home.ask(*ADD, "--sub", "repo:acme/new", "--repository-id", "42")["id"]


def test_an_id_with_leading_zeros_means_the_stored_one(home, active):
    """A repository in an incident must be found however its id was copied."""
    by_repository = ("--repository-id", "0042")

    assert [found["id"] for found in home.listed("bindings", "list", *by_repository)] == [active]
    revoke = ("bindings", "revoke", *by_repository, "--issuer", ISSUER, "--org", "acme", "--yes")
    assert home.ask(*revoke) == {"revoked": [active]}


OF_42 = ("bindings", "revoke", "--repository-id", "42", "--issuer", ISSUER)


def test_a_repository_is_that_of_its_issuer_and_of_the_organisations_named(home, active):
    """Two issuers may give out the same number, and it may be trusted in two organisations."""
    every_issuer = home.folder / "issuers.toml"
    shipped = (REPOSITORY / "data" / "issuers.toml").read_text()
    every_issuer.write_text(shipped.replace("accepted = false", "accepted = true"))
    home.settings["issuers_file"] = str(every_issuer)
    home.ask("org", "add", "other")
    add = ("bindings", "add", "--repository-id", "42", "--sub")
    elsewhere = home.ask(*add, "repo:acme/fork", "--org", "other", "--issuer", ISSUER)["id"]
    kept = home.ask(*add, "repo:acme/new", "--org", "acme", "--issuer", GITLAB)["id"]

    assert home.ask(*OF_42, "--org", "acme", "--yes") == {"revoked": [active]}
    assert home.ask(*OF_42, "--all-orgs", "--yes") == {"revoked": [elsewhere]}
    listed = home.listed("bindings", "list", "--repository-id", "42")
    assert [binding["id"] for binding in listed] == [kept]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ((*OF_42[:4], "--all-orgs"), "--repository-id needs --issuer: two issuers may use"),
        (OF_42, "--repository-id needs either --org or --all-orgs"),
        ((*OF_42, "--org", "acme", "--all-orgs"), "--repository-id needs either --org or"),
        ((*OF_42, "--org", "acme", "obind_1"), "give --org and BINDING_ID, or --repository-id"),
        (("bindings", "revoke", "obind_1"), "give --org and BINDING_ID, or --repository-id"),
        (
            (*OF_42[:4], "--issuer", GITLAB, "--all-orgs"),
            f"no active binding of repository 42 of {GITLAB} in any organisation",
        ),
    ],
)
def test_what_is_to_be_revoked_is_said_in_full(home, active, words, refusal):
    """Nothing is revoked by a command that leaves something open."""
    ran = home.order(*words, "--yes")

    assert ran.code == (1 if refusal.startswith("no active binding") else 2)
    assert ran.refusal.startswith(refusal)
    assert [binding["id"] for binding in home.listed("bindings", "list", "--org", "acme")] == [
        active
    ]


@pytest.mark.parametrize(("reply", "is_revoked"), [("y", True), ("n", False)])
def test_a_repository_is_revoked_once_what_was_shown_is_confirmed(home, active, reply, is_revoked):
    with at_a_terminal(home.environment(), *OF_42, "--org", "acme") as terminal:
        shown = terminal.until("Revoke 1 binding? [y/N]")
        terminal.answer(reply)
        ended = terminal.end()

    assert active in shown
    assert f"Target: data dir {home.data_dir} (COUNTERSIGN_DATA_DIR)." in shown
    assert (ended.out == f"Revoked {active} of acme.\n") is is_revoked
    assert ended.code == (0 if is_revoked else 1)
    (binding,) = home.listed("bindings", "list", "--org", "acme")
    assert (binding["revokedAt"] is not None) is is_revoked


def test_one_binding_is_revoked_at_once_where_no_terminal_is(home, active):
    revoke = ("bindings", "revoke", active, "--org", "acme")
    with at_a_terminal(home.environment(), *revoke) as terminal:
        terminal.until(f"Revoke {active} of acme? [y/N]")
        terminal.answer("")
        asked = terminal.end()
    ran = home.order(*revoke)

    assert asked.code == 1
    assert "not confirmed: nothing was changed" in asked.err
    assert (ran.code, ran.out) == (0, f"Revoked {active} of acme.\n")


def test_the_organisation_of_the_environment_is_that_of_lists(home, active):
    home.ask("org", "add", "other")
    of_42 = ("bindings", "list", "--repository-id", "42")

    assert [one["id"] for one in home.listed("bindings", "list", org="acme")] == [active]
    assert [one["id"] for one in home.listed(*of_42, org="acme")] == [active]
    assert home.listed(*of_42, org="other") == []
    assert [one["id"] for one in home.listed(*of_42, "--all-orgs", org="other")] == [active]


def test_a_repository_is_listed_in_the_state_and_at_the_instant_asked_for(home, revoked, active):
    """A filter that is taken and not heeded answers another question."""
    listed = ("bindings", "list", "--repository-id", "42")
    (row,) = home.listed(*listed, "--state", "revoked")
    then = row["addedAt"]

    assert row["id"] == revoked
    assert [found["id"] for found in home.listed(*listed)] == [active]
    assert [found["id"] for found in home.listed(*listed, "--state", "active")] == [active]
    assert [found["id"] for found in home.listed(*listed, "--as-of", then)] == [revoked]
    assert home.listed(*listed, "--as-of", LONG_AGO) == []
    assert home.listed(*listed, "--as-of", then, "--state", "revoked") == []


@pytest.mark.parametrize("called", ["id", "name"])
def test_a_binding_is_limited_to_a_project_by_id_or_name(home, called):
    project = home.ask("project", "add", "--org", "acme", "payments")

    made = home.ask(
        *ADD, "--sub", "repo:acme/a", "--repository-id", "7", "--project", project[called]
    )

    assert made["projectId"] == project["id"]


def test_conditions_are_told_by_claim_and_none_is_dropped(home):
    job = (*ADD, "--sub", "repo:acme/a", "--repository-id", "7")
    production = ("--condition", "environment=production")

    made = home.ask(*job, *production, "--condition", "ref=a=b")
    twice = home.order(*job, *production, "--condition", "environment=staging")

    assert made["conditions"] == {"environment": "production", "ref": "a=b"}
    assert twice.code == 2
    assert "names a claim twice" in twice.refusal


def test_the_map_shows_what_each_repository_is_trusted_for(home, active):
    main = "repo:acme/app:ref:refs/heads/main"
    other = home.ask(*ADD, "--sub", main, "--repository-id", "7", "--event", "push")["id"]
    found = home.ask("bindings", "map", "--org", "acme")
    shown = [
        line.split() for line in home.order("bindings", "map", "--org", "acme").out.splitlines()
    ]

    assert {each["id"] for each in found["bindings"]} == {active, other}
    assert ["acme/app", "main", "push", "all", "of", "acme", "0", "0", other] in shown
    assert ["repo:acme/new", "–", "any", "all", "of", "acme", "0", "0", active] in shown
    assert ["0", "installs", "without", "a", "binding"] in shown
