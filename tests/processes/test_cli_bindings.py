"""`countersign bindings`: one repository in every organisation, and limits by name."""

import pytest

from tests.conftest import ISSUER

pytestmark = pytest.mark.slow

ADD = ("bindings", "add", "--org", "acme", "--issuer", ISSUER)
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
    assert home.ask("bindings", "revoke", *by_repository) == {"revoked": [active]}


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
