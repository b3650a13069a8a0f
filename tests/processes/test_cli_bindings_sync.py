"""`countersign bindings sync` and `replace`: bindings by a file, and a binding in one step."""

import random
import time
from typing import Any

import pytest

from tests.budgets import budget
from tests.conftest import ISSUER
from tests.processes.command_line import Ran
from tests.processes.homes import Home
from tests.processes.terminals import at_a_terminal

pytestmark = pytest.mark.slow

MAIN, NEXT = "repo:acme/payments:ref:refs/heads/main", "repo:acme/payments:ref:refs/heads/next"
ADD = ("bindings", "add", "--org", "acme", "--issuer", ISSUER)
HEAD = f'issuer = "{ISSUER}"\n'
MANY = 150
KILLS = budget(2, 8)


def entry(sub: str = MAIN, repository_id: str = "42", **more: Any) -> str:
    """One binding of a file."""
    lines = [f'sub_pattern = "{sub}"', f'repository_id = "{repository_id}"']
    lines += [f"{name} = {value!r}" for name, value in more.items()]
    return "\n".join(["[[bindings]]", *lines, ""])


def sync(home: Home, text: str, *options: str) -> Ran:
    """`sync` of a file with `text`."""
    file = home.folder / "bindings.toml"
    file.write_text(text)
    return home.order("bindings", "sync", str(file), "--org", "acme", *options)


def active(home: Home) -> dict[str, dict[str, Any]]:
    """Acme's active bindings by subject."""
    listed = home.listed("bindings", "list", "--org", "acme", "--state", "active")
    return {binding["subPattern"]: binding for binding in listed}


def rows(home: Home) -> list[dict[str, Any]]:
    """Acme's audit rows about bindings, newest first."""
    events = ("--event", "oidc_binding_created", "--event", "oidc_binding_revoked")
    return home.ask("audit", "query", "--org", "acme", *events)["entries"]


def test_a_file_is_planned_applied_and_then_changes_nothing(home):
    home.ask("project", "add", "--org", "acme", "payments")
    kept = home.ask(*ADD, "--sub", NEXT, "--repository-id", "42", "--event", "push")["id"]
    changed = home.ask(*ADD, "--sub", MAIN, "--repository-id", "42", "--event", "push")["id"]
    stays = home.ask(*ADD, "--sub", "repo:acme/other", "--repository-id", "43")["id"]
    before = rows(home)
    text = HEAD + (
        entry(MAIN, event_names=["push", "schedule"], project="payments")
        + entry(NEXT, "0042", event_names=["push"])
        + entry("repo:acme/new", event_names=["push"])
    )

    planned = sync(home, text, "--plan")
    assert planned.code == 5
    assert planned.out.splitlines() == [
        "Plan for acme by bindings.toml:",
        next(line for line in planned.out.splitlines() if f"  ~ replace {changed}" in line),
        "  + create repo:acme/new (42)",
        "1 to create, 1 to replace; 1 unchanged.",
        "1 active, not in bindings.toml: they stay (--prune revokes them).",
    ]
    assert "event_names: push → push, schedule; project_id: any → proj_" in planned.out
    assert rows(home) == before

    done = sync(home, text, "--yes", "--json", "--reason", "file")
    assert (done.code, done.json["applied"], done.json["unchanged"]) == (0, True, 1)
    assert [action["action"] for action in done.json["actions"]] == ["replace", "create"]
    now = active(home)
    assert {now[NEXT]["id"], now["repo:acme/other"]["id"]} == {kept, stays}
    assert now[MAIN]["eventNames"] == ["push", "schedule"]
    assert now[MAIN]["projectId"] is not None
    (old,) = home.listed("bindings", "list", "--org", "acme", "--state", "revoked")
    assert old["id"] == changed
    assert old["revokedReason"] == f"replaced by {now[MAIN]['id']}: file"
    after = rows(home)
    assert len(after) == len(before) + 3

    again = sync(home, text, "--yes")
    nothing = "No changes: 3 bindings of acme are as in bindings.toml."
    assert (again.code, again.out.splitlines()[0]) == (0, nothing)
    assert sync(home, text, "--plan").code == 0
    assert rows(home) == after


def test_prune_revokes_what_the_file_does_not_name(home):
    home.ask(*ADD, "--sub", MAIN, "--repository-id", "42")
    gone = home.ask(*ADD, "--sub", "repo:acme/other", "--repository-id", "43")["id"]
    text = HEAD + entry(MAIN)

    assert sync(home, text, "--plan").code == 0
    planned = sync(home, text, "--plan", "--prune")
    assert planned.code == 5
    assert f"  - revoke {gone} repo:acme/other (43)" in planned.out.splitlines()
    assert sync(home, text, "--yes", "--prune", "--reason", "left").code == 0
    assert list(active(home)) == [MAIN]
    (old,) = home.listed("bindings", "list", "--org", "acme", "--state", "revoked")
    assert (old["id"], old["revokedReason"]) == (gone, "left")
    assert sync(home, "bindings = []", "--yes", "--prune").code == 0
    assert active(home) == {}


def test_team_bindings_follow_their_envelope(home):
    home.ask("project", "add", "--org", "acme", "payments")
    home.ask("team", "add", "--org", "acme", "platform")
    text = HEAD + (
        entry(MAIN, team="platform", event_names=["push"])
        + entry(MAIN, origin="org_admin", project="payments")
    )

    assert sync(home, text, "--yes").code == 0
    listed = home.listed("bindings", "list", "--org", "acme")
    assert {binding["origin"] for binding in listed} == {"org_admin", "team_admin"}
    assert len({binding["projectId"] for binding in listed}) == 1
    assert sync(home, text, "--plan").code == 0


def test_an_origin_that_the_file_does_not_name_stays(home):
    assert sync(home, HEAD + entry(MAIN, origin="org_admin"), "--yes").code == 0

    changed = HEAD + entry(MAIN, event_names=["push"]) + entry(NEXT)
    assert sync(home, changed, "--yes").code == 0

    now = active(home)
    assert (now[MAIN]["origin"], now[NEXT]["origin"]) == ("org_admin", "platform_admin")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "bindings.toml: Object missing required field `bindings`"),
        ("bindings = [", "bindings.toml: "),
        (entry(), "binding 1 (repo:acme/payments:ref:refs/heads/main): issuer is required"),
        (HEAD + entry(origin="owner"), "origin must be 'org_admin' or 'team_admin'"),
    ],
)
def test_a_faulty_file_is_refused_with_its_place(quiet_home, text, said):
    ran = sync(quiet_home, text, "--yes")

    assert ran.code == 1
    assert said in ran.refusal
    assert active(quiet_home) == {}


def test_one_refused_change_refuses_all(home):
    home.ask("org", "add", "other")
    theirs = ("--sub", NEXT, "--repository-id", "42")
    home.ask("bindings", "add", "--org", "other", "--issuer", ISSUER, *theirs)

    ran = sync(home, HEAD + entry(MAIN) + entry(NEXT), "--yes")

    assert ran.code == 1
    assert "An active binding already exists" in ran.err
    assert active(home) == {}
    assert rows(home) == []


def test_a_change_between_plan_and_apply_is_refused(home):
    binding_id = home.ask(*ADD, "--sub", MAIN, "--repository-id", "42")["id"]
    file = home.folder / "bindings.toml"
    file.write_text(HEAD + entry(MAIN, event_names=["push"]) + entry(NEXT))
    words = ("bindings", "sync", str(file), "--org", "acme")
    with at_a_terminal(home.environment(), *words) as terminal:
        shown = terminal.until("Apply these changes to the bindings of acme? [y/N]")
        home.ask("bindings", "replace", binding_id, "--org", "acme", "--event", "schedule")
        terminal.answer("y")
        ended = terminal.end()

    assert "+ create" in shown
    assert ended.code == 1
    assert "the bindings were changed since the plan was made: plan again" in ended.err
    now = active(home)
    assert list(now) == [MAIN]
    assert now[MAIN]["eventNames"] == ["schedule"]


def test_a_killed_sync_has_applied_all_or_nothing(home):
    """One transaction: no kill leaves a part of the file in force."""
    chance = random.Random(1)
    file = home.folder / "bindings.toml"
    for number in range(KILLS):
        entries = "".join(entry(f"repo:acme/{number}/{each}") for each in range(MANY))
        file.write_text(HEAD + entries)
        process = home.begin("bindings", "sync", str(file), "--org", "acme", "--yes")
        time.sleep(chance.uniform(0.5, 2.5))
        process.kill()
        process.communicate()
        new = [sub for sub in active(home) if sub.startswith(f"repo:acme/{number}/")]
        assert len(new) in {0, MANY}, f"seed 1, kill {number}"
        assert len(rows_of(home, number)) == len(new)


def rows_of(home: Home, number: int) -> list[dict[str, Any]]:
    """The audit rows of one round's bindings."""
    query = ("audit", "query", "--org", "acme", "--event", "oidc_binding_created")
    entries = home.ask(*query, "--limit", "1000")["entries"]
    start = f"repo:acme/{number}/"
    return [row for row in entries if row["payload"]["sub_pattern"].startswith(start)]


# replace


def test_a_binding_is_replaced_by_a_command(home):
    home.ask("project", "add", "--org", "acme", "payments")
    first = home.ask(
        *ADD, "--sub", MAIN, "--repository-id", "42", "--event", "push", "--project", "payments"
    )
    replace = ("bindings", "replace", "--org", "acme")

    second = home.ask(*replace, first["id"], "--event", "push", "--event", "schedule")

    assert second["replaces"] == first["id"]
    (now,) = active(home).values()
    assert (now["id"], now["eventNames"]) == (second["id"], ["push", "schedule"])
    assert (now["projectId"], now["origin"]) == (first["projectId"], "platform_admin")
    third = home.ask(*replace, now["id"], "--any-event", "--any-project", "--reason", "wider")
    (now,) = active(home).values()
    assert (now["eventNames"], now["projectId"]) == ([], None)
    ran = home.order(*replace, third["id"], "--event", "push", "--any-event")
    assert ran.refusal.startswith("give either --event or --any-event")
    gone = home.order(*replace, first["id"])
    assert gone.refusal == "Binding not found for this org (or already revoked)"
