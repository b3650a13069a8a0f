"""Which of several matching bindings a token is attributed by."""

import pytest

from service.ci.verifier.candidates import Candidate
from service.ci.verifier.rules import most_specific


def candidate(name: str, **of: object) -> Candidate:
    values = {"project_id": None, "is_team": False, "repository_id": None, "event_sets": ()} | of
    return Candidate(id=name, **values)


ORG = candidate("org")
PROJECT = candidate("project", project_id="prj_1")
TEAM = candidate("team", is_team=True)
WITHIN_PROJECT = candidate("within", is_team=True, project_id="prj_1", stands_for="project")


@pytest.mark.parametrize(
    ("matching", "first"),
    [
        ([ORG], ["org"]),
        ([ORG, PROJECT], ["project"]),
        ([TEAM, ORG], ["team"]),
        ([PROJECT, WITHIN_PROJECT], ["within"]),
        ([ORG, PROJECT, WITHIN_PROJECT], ["within"]),
        ([PROJECT, TEAM], ["project", "team"]),
        ([ORG, candidate("other")], ["org", "other"]),
    ],
)
def test_what_is_more_specific_goes_first(matching: list[Candidate], first: list[str]):
    assert [one.id for one in most_specific(matching)] == first
