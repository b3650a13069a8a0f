"""`countersign bindings`: one repository in every organisation, and limits by name."""

import pytest

from service.settings import REPOSITORY
from tests.conftest import ISSUER

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

    assert [found["id"] for found in home.ask("bindings", "list", *by_repository)] == [active]
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
    listed = home.ask("bindings", "list", "--repository-id", "42")
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

    assert ran.code == 1
    assert ran.refusal.startswith(refusal)
    assert [binding["id"] for binding in home.ask("bindings", "list", "--org", "acme")] == [active]


@pytest.mark.parametrize(("reply", "is_revoked"), [(b"y\n", True), (b"n\n", False), (b"", False)])
def test_a_repository_is_revoked_once_what_was_shown_is_confirmed(home, active, reply, is_revoked):
    """A script that says nothing revokes nothing."""
    ran = home.run(*OF_42, "--org", "acme", given=reply)

    assert active in ran.err
    assert "Revoke 1 binding? [y/N]" in ran.err
    assert (ran.out == f"Revoked {active} of acme.\n") is is_revoked
    assert (ran.code == 0) is is_revoked
    (binding,) = home.ask("bindings", "list", "--org", "acme")
    assert (binding["revokedAt"] is not None) is is_revoked


def test_a_repository_is_listed_in_the_state_and_at_the_instant_asked_for(home, revoked, active):
    """A filter that is taken and not heeded answers another question."""
    listed = ("bindings", "list", "--repository-id", "42")
    (row,) = home.ask(*listed, "--state", "revoked")
    then = row["addedAt"]

    assert row["id"] == revoked
    assert [found["id"] for found in home.ask(*listed)] == [active]
    assert [found["id"] for found in home.ask(*listed, "--state", "active")] == [active]
    assert [found["id"] for found in home.ask(*listed, "--as-of", then)] == [revoked]
    assert home.ask(*listed, "--as-of", LONG_AGO) == []
    assert home.ask(*listed, "--as-of", then, "--state", "revoked") == []


@pytest.mark.parametrize("called", ["id", "name"])
def test_a_binding_is_limited_to_a_project_by_id_or_name(home, called):
    """As an API key is."""
    project = home.ask("project", "add", "--org", "acme", "payments")

    made = home.ask(
        *ADD, "--sub", "repo:acme/a", "--repository-id", "7", "--project", project[called]
    )

    assert made["projectId"] == project["id"]
