"""The same commands on a server in another process and on a data dir, one after the other."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ADMIN_TOKEN, ISSUER
from tests.processes.command_line import Ran
from tests.processes.desks import Desk
from tests.processes.homes import Home, Server, owner_cookie
from tests.service.packages.policy.osv_files import osv_record, osv_zip

pytestmark = pytest.mark.slow

REFUSED, CHANGES = 1, 5
ACME = ("--org", "acme")
BINDING = ("--issuer", ISSUER, "--sub", "repo:acme/walk", "--repository-id", "77")
FILES = {
    "rules": "cooldown.min_age_days = 7\n",
    "bindings": f"""
issuer = "{ISSUER}"
[[bindings]]
sub_pattern = "repo:acme/declared"
repository_id = 78
event_names = ["push"]
project = "payments"
""",
}
_CHANGING = re.compile(
    r"\b[a-z]+_[A-Za-z0-9]{16,}\b|\d{4}-\d\d-\d\dT[\d:.]+Z|–|cs_\S+"
    "|github:|system:cli|org_admin|platform_admin"
)
"""Ids, instants, secrets, the actor and the origin of bindings."""

_PLACE = re.compile(r" \(?at http://[^\s,)]+\)?")

OPERATED = (
    "--event",
    "org_created",
    "--event",
    "org_tier_changed",
    "--event",
    "legal_hold_changed",
)
"""Rows of the operator's own endpoints."""

Order = Callable[..., Ran]
Ask = Callable[..., Any]


def places(actions: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What a sync has done, without ids."""
    return [(each["action"], each["sub_pattern"], each["differences"]) for each in actions]


def steps(order: Order, ask: Ask, files: Mapping[str, str]) -> list[Any]:
    """What people are told by each command, without what differs from run to run.

    Each is given twice, to a script as well.
    """
    told: list[Any] = []
    rules = files["rules"]

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
    new = ask("bindings", "replace", *ACME, binding["id"], "--event", "push")
    assert (new["replaces"], new["eventNames"]) == (binding["id"], ["push"])
    assert order("bindings", "sync", *ACME, files["bindings"], "--plan").code == CHANGES
    told.append(places(ask("bindings", "sync", *ACME, files["bindings"], "--yes")["actions"]))
    tell("bindings", "sync", *ACME, files["bindings"], "--yes", "--prune", "--reason", "tidy")
    told.append(ask("bindings", "sync", *ACME, files["bindings"], "--prune")["actions"])
    other = ask("bindings", "add", *ACME, *BINDING, "--project", "payments")
    assert other["projectId"] == project["id"]
    of = ("--repository-id", "77", "--issuer", ISSUER, "--yes")
    assert ask("bindings", "revoke", *ACME, *of)["revoked"] == [other["id"]]
    told.append(_PLACE.sub("", order("bindings", "revoke", *ACME, *of).refusal))
    tell("bindings", "list", *ACME, "--state", "active")
    told.append(sorted(ask("access", "report", *ACME)))
    told.append(
        sorted(ask("session", "list", *ACME, "--member", "ada@acme.example")["sessions"][0])
    )
    change("session", "issue", *ACME, "--member", "ada@acme.example")
    told.append(sorted(ask("audit", "query", *ACME, "--explain")["plan"][0]))
    tell("bindings", "rejected", *ACME)
    tell("policy", "exceptions", "list", *ACME)
    assert ask("policy", "exceptions", "list", *ACME)["exceptions"] == []
    row = ask("audit", "list", *ACME, "--limit", "1", "--event", "oidc_binding_revoked")
    told.append(" ".join(row["entries"][0]))
    tell("audit", "exports", "list", *ACME)
    return told


@pytest.fixture
def member(desk: Desk, server: Server, ada: str) -> Desk:
    """Signed in as an owner of acme."""
    desk.ask("login", server.url, "--with-token", given=ada)
    return desk


def test_a_member_of_a_server_is_told_what_the_operator_of_a_data_dir_is(
    member: Desk, home: Home
) -> None:
    home.change(owner_cookie)
    files = {}
    for name, text in FILES.items():
        files[name] = str(home.folder / f"{name}.toml")
        Path(files[name]).write_text(text)

    there = steps(member.order, member.ask, files)

    assert there == steps(home.order, home.ask, files)


def operated(order: Order, ask: Ask, files: Sequence[str]) -> list[Any]:
    """What the operator's commands answer to scripts and people, with a declaration and a feed."""
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
    trust = ("--issuer", ISSUER, "--sub", "repo:walk/a", "--repository-id", "79")
    binding = ask("bindings", "add", "--org", "walk", *trust)
    everywhere = ("--repository-id", "79", "--all-orgs")
    assert ask("bindings", "list", *everywhere)["bindings"][0]["org"] == "walk"
    revoke = ("bindings", "revoke", *everywhere, "--issuer", ISSUER)
    assert "Add --yes to confirm" in order(*revoke).refusal
    assert ask(*revoke, "--yes")["revoked"] == [binding["id"]]
    declared, feed = files
    imported = ask("blocklist", "import", feed)
    answers += [
        ask("apply", declared),
        order("apply", declared).out,
        {name: value for name, value in imported.items() if name != "seconds"},
        order("blocklist", "import", feed, "--plan").out,
        sorted(ask("blocklist", "status")),
        order("blocklist", "import", declared).refusal,
        ask("blocklist", "remove", "--feed", "osv", "--yes"),
        _PLACE.sub("", order("blocklist", "remove", "--feed", "osv").refusal),
        ask("artifact", "list"),
    ]
    cookie = ask("session", "issue", *ACME, "--member", "ada@acme.example", "--cookie")["cookie"]
    assert cookie.startswith("csess_")
    people = order("org", "list").out
    assert "walk" in people
    return answers


@pytest.mark.usefixtures("ada")
def test_the_operator_of_a_server_is_told_what_the_operator_of_a_data_dir_is(
    desk: Desk, server: Server, home: Home
) -> None:
    at = {"COUNTERSIGN_SERVER": server.url, "COUNTERSIGN_TOKEN": ADMIN_TOKEN}

    def order(*words: str) -> Ran:
        return desk.order(*words, **at)

    def ask(*words: str) -> Any:
        return desk.ask(*words, **at)

    home.change(owner_cookie)
    declared, feed = home.folder / "orgs.toml", home.folder / "feed.zip"
    declared.write_text('[orgs.walk]\nprojects = ["payments"]\n')
    feed.write_bytes(osv_zip([osv_record("MAL-1", "one")]).getvalue())
    files = (str(declared), str(feed))

    assert operated(order, ask, files) == operated(home.order, home.ask, files)
    rows = ask("audit", "list", "--org", "walk", *OPERATED)["entries"]
    assert {row["actor"] for row in rows} == {"system:admin-token"}
    assert {row["actor_tenant_id"] for row in rows} == {"org_operator"}
    rows = home.ask("audit", "list", "--org", "walk", *OPERATED)["entries"]
    assert {row["actor"] for row in rows} == {"system:cli"}


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("member", "remove", "--org", "acme", "eve@acme.example"), "eve@acme.example"),
        (("team", "set-admin", "--org", "acme", "none", "eve@acme.example"), "none"),
        (("apikey", "list", "--org", "acmee"), "did you mean acme?"),
        (("apikey", "revoke", "--org", "acme", "key_none"), "key_none"),
        (("bindings", "replace", "--org", "acme", "obind_none"), "Binding not found"),
        (("audit", "seal"), "works on a data dir only"),
    ],
)
def test_what_there_is_not_is_named_in_one_line(
    member: Desk, words: tuple[str, ...], refusal: str
) -> None:
    for json in ((), ("--json",)):
        assert refusal in member.order(*words, *json).refusal
