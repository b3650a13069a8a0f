"""The same commands on a server in another process and on a data dir, one after the other."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import ADMIN_TOKEN, ISSUER
from tests.processes.command_line import Ran
from tests.processes.desks import Desk, by_browser
from tests.processes.homes import Home, Server

pytestmark = pytest.mark.slow

REFUSED, WRONG_USAGE, UNAVAILABLE = 1, 2, 3
ACME = ("--org", "acme")
BINDING = ("--issuer", ISSUER, "--sub", "repo:acme/walk", "--repository-id", "77")
_CHANGING = re.compile(
    r"\b[a-z]+_[A-Za-z0-9]{16,}\b|\d{4}-\d\d-\d\dT[\d:.]+Z|–|cs_\S+"
    "|github:|system:cli"
)
"""Ids, instants, secrets and the actor."""

_PLACE = re.compile(r" at http://[^\s,]+")

Order = Callable[..., Ran]
Ask = Callable[..., Any]


def steps(order: Order, ask: Ask, rules: str) -> list[Any]:
    """What people are told by each command, without what differs from run to run.

    `rules` is a file with a policy. Each is given twice, to a script as well.
    """
    told: list[Any] = []

    def tell(*words: str) -> Any:
        ran = order(*words)
        assert ran.code == 0, (words, ran)
        out = _PLACE.sub("", ran.out)
        told.append(" ".join(_CHANGING.sub(" ", out).split()))
        return ran

    def change(*words: str) -> Any:
        answered = ask(*words)
        told.append(" ".join(sorted(answered)))
        return answered

    key = change("apikey", "issue", *ACME, "--name", "walk", "--scope", "audit:r")
    new = change("apikey", "rotate", *ACME, key["id"], "--overlap", "0")
    assert len(ask("apikey", "list", *ACME)["api_keys"]) == 2
    tell("apikey", "list", *ACME)
    tell("apikey", "revoke", *ACME, new["id"])
    project = change("project", "add", *ACME, "payments")
    assert ask("project", "list", *ACME)["projects"] == [project]
    tell("project", "list", *ACME)
    change("team", "add", *ACME, "platform")
    change("member", "add", *ACME, "bob@acme.example", "--idp", "github")
    tell("member", "set-role", *ACME, "bob@acme.example", "admin")
    tell("team", "set-admin", *ACME, "platform", "bob@acme.example")
    told.append(ask("team", "list", *ACME)["teams"][0]["admins"][0])
    tell("team", "list", *ACME)
    tell("team", "set-admin", *ACME, "platform", "bob@acme.example", "--remove")
    tell("session", "revoke", *ACME, "--member", "bob@acme.example")
    change("member", "remove-passkeys", *ACME, "bob@acme.example")
    told.append(" ".join(ask("member", "list", *ACME)["members"][0]))
    tell("member", "remove", *ACME, "bob@acme.example")
    ask("member", "add", *ACME, "a/b@acme.example", "--idp", "github")
    ask("team", "add", *ACME, "a/b")
    tell("team", "set-admin", *ACME, "a/b", "a/b@acme.example")
    tell("team", "set-admin", *ACME, "a/b", "a/b@acme.example", "--remove")
    tell("member", "remove", *ACME, "a/b@acme.example")
    tell("org", "grant", "acme", "auditor", "oidc:r")
    told.append(ask("org", "grant", "acme", "auditor")["role"])
    tell("org", "domains", "acme")
    tell("policy", "show", *ACME)
    change("policy", "set", *ACME, rules, "--dry-run")
    change("policy", "set", *ACME, rules, "--yes")
    tell("policy", "set", *ACME, rules, "--yes")
    tell("policy", "show", *ACME)
    told.append(ask("policy", "show", *ACME, "--revision", "1")["policy"])
    tell(
        "policy", "check", *ACME, "pypi", "requests==2.32.3", "--published", "2020-01-01T00:00:00Z"
    )
    told.append(order("policy", "show", *ACME, "--revision", "9").refusal)
    binding = ask("bindings", "add", *ACME, *BINDING)
    assert ask("bindings", "show", *ACME, binding["id"])["effective"] is True
    told.append(" ".join(ask("bindings", "show", *ACME, binding["id"])))
    (listed,) = ask("bindings", "list", *ACME)["bindings"]
    assert listed["id"] == binding["id"]
    tell("bindings", "revoke", *ACME, binding["id"])
    tell("bindings", "rejected", *ACME)
    tell("policy", "exceptions", "list", *ACME)
    assert ask("policy", "exceptions", "list", *ACME) == {"org": "acme", "exceptions": []}
    row = ask("audit", "list", *ACME, "--limit", "1", "--event", "oidc_binding_revoked")
    told.append(" ".join(row["entries"][0]))
    tell("audit", "exports", "list", *ACME)
    return told


def test_a_member_of_a_server_is_told_what_the_operator_of_a_data_dir_is(
    desk: Desk, server: Server, ada: str, home: Home
) -> None:
    assert by_browser(desk, server, ada).code == 0
    rules = home.folder / "rules.toml"
    rules.write_text("cooldown.min_age_days = 7\n")

    there = steps(desk.order, desk.ask, str(rules))

    assert there == steps(home.order, home.ask, str(rules))


def operated(order: Order, ask: Ask) -> list[Any]:
    """What the operator's commands answer to scripts and people."""
    made = ask("org", "add", "walk", "--tier", "team")
    assert order("org", "add", "walk").code == REFUSED
    answers = [
        sorted(made),
        ask("org", "set-tier", "walk", "free"),
        order("org", "hold", "walk", "--reason", "case 1").out[:33],
        sorted(ask("org", "hold", "walk", "--reason", "case 2")),
        ask("org", "release", "walk"),
        order("org", "release", "walk").out,
        ask("org", "allow-domain", "walk", "walk.example", "--idp", "google"),
        order("org", "allow-domain", "walk", "walk.example", "--idp", "google", "--remove").out,
        [sorted(each) for each in ask("org", "list")["organisations"]],
    ]
    people = order("org", "list").out
    assert "walk" in people
    return answers


def test_the_operator_of_a_server_is_told_what_the_operator_of_a_data_dir_is(
    desk: Desk, server: Server, home: Home
) -> None:
    at = {"COUNTERSIGN_SERVER": server.url, "COUNTERSIGN_TOKEN": ADMIN_TOKEN}

    def order(*words: str) -> Ran:
        return desk.order(*words, **at)

    def ask(*words: str) -> Any:
        return desk.ask(*words, **at)

    assert operated(order, ask) == operated(home.order, home.ask)
    rows = ask("audit", "list", "--org", "walk")["entries"]
    assert {row["actor"] for row in rows} == {"system:admin-token"}
    assert {row["actor_tenant_id"] for row in rows} == {"org_operator"}
    rows = home.ask("audit", "list", "--org", "walk")["entries"]
    assert {row["actor"] for row in rows} == {"system:cli"}


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("org", "list"), "only the operator of this service may do this"),
        (("org", "hold", "acme", "--reason", "x"), "only the operator of this service"),
        (("apikey", "list", "--org", "other"), "Org not found"),
        (("member", "remove", "--org", "acme", "eve@acme.example"), "eve@acme.example"),
        (("team", "set-admin", "--org", "acme", "none", "eve@acme.example"), "none"),
        (("apikey", "list", "--org", "acmee"), "did you mean acme?"),
        (("apikey", "revoke", "--org", "acme", "key_none"), "key_none"),
    ],
)
def test_what_a_member_may_not_do_is_refused_in_one_line(
    desk: Desk, server: Server, ada: str, words: tuple[str, ...], refusal: str
) -> None:
    assert by_browser(desk, server, ada).code == 0

    for json in ((), ("--json",)):
        ran = desk.order(*words, *json)
        assert ran.code == REFUSED
        assert refusal in ran.refusal


def test_a_server_that_is_gone_is_named(desk: Desk, server: Server, ada: str) -> None:
    assert by_browser(desk, server, ada).code == 0
    server.stop()

    for words in (("org", "list"), ("apikey", "list", "--org", "acme"), ("bindings", "list")):
        ran = desk.order(*words)
        assert (ran.code, f"cannot reach {server.url}" in ran.refusal) == (UNAVAILABLE, True)
    assert desk.order("audit", "seal").code == WRONG_USAGE
