"""`countersign policy exceptions`: the same on a server and on its data dir."""

import pytest

from tests.processes.homes import Home, Server

pytestmark = pytest.mark.slow

REFUSED = 1
ORG = ("--org", "acme")


@pytest.fixture
def asked(server: Server) -> list[str]:
    """The ids of two requests, oldest first."""
    path = "/api/v1/admin/orgs/acme/policy/exceptions"
    requests = [
        {"ecosystem": "npm", "package": package, "reason": "fixes a vulnerability"}
        for package in ("left-pad@1.3.0", "is-odd@3.0.1")
    ]
    with server.client() as operator:
        answers = [operator.post(path, json=request) for request in requests]
    assert [answer.status_code for answer in answers] == [201, 201]
    return [answer.json()["id"] for answer in answers]


def test_requests_are_listed_allowed_and_declined(signed_in, there: Home, server, asked):
    first, second = asked
    for place in (signed_in, there):
        listed = place.ask("policy", "exceptions", "list", *ORG)["exceptions"]
        assert {one["id"] for one in listed} == set(asked)
        assert {one["state"] for one in listed} == {"open"}
        newest = place.ask("policy", "exceptions", "list", *ORG, "--limit", "1")["exceptions"]
        assert newest in ([one] for one in listed)
    people = signed_in.order("policy", "exceptions", "list", *ORG).out
    assert f"Exceptions at {server.url} (2)" in people
    assert "left-pad" in people

    words = ("policy", "exceptions", "allow", first, *ORG, "--reason", "read the diff")
    allowed = signed_in.ask(*words)
    declined = there.ask("policy", "exceptions", "decline", second, *ORG)

    assert (allowed["state"], allowed["decided_reason"]) == ("allowed", "read the diff")
    assert (declined["state"], declined["decided_by"]) == ("declined", "system:cli")
    rules = there.ask("policy", "show", *ORG)["policy"]["allow"]
    assert [(rule["id"], rule["package"]) for rule in rules] == [(first, "left-pad")]
    rows = there.ask("audit", "query", *ORG, "--event", "policy_exception_decided")["entries"]
    assert {row["subject"] for row in rows} == set(asked)
    open_ones = ("policy", "exceptions", "list", *ORG, "--state", "open")
    assert signed_in.ask(*open_ones)["exceptions"] == []


def test_a_decision_is_made_once_and_about_what_is_there(signed_in, there: Home, asked):
    first, _ = asked
    before = there.ask("policy", "show", *ORG)["revision"]
    signed_in.ask("policy", "exceptions", "decline", first, *ORG)
    for place in (signed_in, there):
        again = place.order("policy", "exceptions", "allow", first, *ORG)
        unknown = place.order("policy", "exceptions", "allow", "pexc_0", *ORG)
        long = place.order("policy", "exceptions", "allow", asked[1], *ORG, "--reason", "x" * 5000)
        assert [ran.code for ran in (again, unknown, long)] == [REFUSED] * 3
        assert "declined" in again.refusal
        assert "reason" in long.refusal

    assert there.ask("policy", "show", *ORG)["revision"] == before
