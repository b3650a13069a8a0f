"""The `countersign` command as scripts and people use it: answers, exit codes, one-line errors."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import ISSUER, bindings_path
from tests.interpreters import run_module
from tests.processes.homes import CLI, PLATFORM, all_entries

pytestmark = pytest.mark.slow

REFUSED, WRONG_USAGE, UNAVAILABLE = 1, 2, 3

_TRUST = ("--issuer", ISSUER, "--repository-id")


def test_rows_of_the_command_line_say_who_acted(home):
    home.ask("bindings", "add", "--org", "acme", *_TRUST, "7", "--sub", "repo:acme/a")
    (binding,) = home.listed("bindings", "list", "--org", "acme")
    home.ask("bindings", "revoke", "--org", "acme", binding["id"], "--reason", "rotated")

    rows = home.ask("audit", "query", "--org", "acme", "--subject", binding["id"])["entries"]
    assert [row["event"] for row in rows] == ["oidc_binding_revoked", "oidc_binding_created"]
    for row in rows:
        assert row["actor"] == row["payload"]["by_user_id"] == "system:cli"
        assert row["actor_source"] == "system"
        assert row["actor_tenant_id"] == PLATFORM
        assert row["verdict_source"] == "cli"
        assert row["request_id"] is None
        assert row["source_ip"] is None
    assert (binding["origin"], binding["addedBy"]) == ("platform_admin", "system:cli")
    assert rows[0]["payload"]["revoked_reason"] == "rotated"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("org add acme", "organisation acme already exists"),
        ("org add not/a/slug", "slug must be"),
        ("org set-tier missing free", "Org not found"),
        (
            "member remove --org acme missing@acme.example",
            "Member not found for this org: missing@",
        ),
        ("bindings revoke --org acme obind_1", "Binding not found for this org"),
        ("bindings add --org acme --issuer https://x.example --sub a", "issuer is not on the"),
        (
            "bindings add --org acme --issuer x --sub a --project nil",
            "Project not found for this org",
        ),
        ("bindings list --repository-id banana", "repository_id must be a positive integer string"),
        (
            "bindings revoke --repository-id banana --issuer x --all-orgs",
            "repository_id must be a positive integer string",
        ),
        (
            "bindings revoke --repository-id 0042 --issuer x --org acme",
            "no active binding of repository 42 of x in acme",
        ),
        ("audit query --org acme --cursor made-up", "cursor is not valid for this query"),
        ("audit query --org acme --event blokclist_hit", "event must be one of oss_first_party, "),
        (
            "audit export --org acme --format csv --decision !blocked -",
            "decision must be one of ALLOWED, BLOCKED, not '!blocked' (case matters: BLOCKED)",
        ),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_1(quiet_home, words, refusal):
    ran = quiet_home.order(*words.split(), "--json")

    assert ran.code == REFUSED
    assert ran.refusal.startswith(refusal)


def test_a_command_that_has_ended_says_nothing_more(home):
    """DuckDB lists on standard error what is not released when a process ends."""
    words = ("alert", "rule", "create", "--org", "acme", "New", "--query", "event=blocklist_hit")
    ran = run_module(CLI, *words, is_fresh=True, env=home.environment())

    assert ran.returncode == 0
    assert "leaked" not in ran.stderr.decode()


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("org add acme", {}),
        ("org list", {"port": "many"}),
        ("init", {"port": "many"}),
        ("serve", {"port": "many"}),
        ("demo", {"port": "many"}),
    ],
)
def test_a_script_reads_its_refusals_as_json_too(quiet_home, words, settings):
    """A script that parses answers must not have to parse prose for the failures."""
    said = quiet_home.order(*words.split(), **settings)
    scripted = quiet_home.order(*words.split(), "--json", **settings)

    assert said.err == f"countersign: {said.refusal}\n"
    assert json.loads(scripted.err) == {"error": said.refusal}
    assert (scripted.code, scripted.err.count("\n")) == (said.code, 1)


def test_a_process_answers_as_a_command_within_a_test_does(home):
    listed = home.run("org", "list", "--json")
    assert (listed.code, listed.err) == (0, "")
    assert listed.json == home.ask("org", "list")

    refused = home.run("org", "add", "acme")
    assert (refused.code, refused.refusal) == (REFUSED, "organisation acme already exists")


@pytest.mark.parametrize(
    ("words", "settings", "refusal"),
    [
        ("org list", {"data_dir": "/nowhere/at/all"}, "no data in /nowhere/at/all: run "),
        ("org list", {"port": "many"}, "COUNTERSIGN_PORT: "),
        ("serve", {"port": "many"}, "COUNTERSIGN_PORT: "),
        ("init", {"prot": "1"}, "unknown setting: COUNTERSIGN_PROT"),
        ("org list", {"issuers_file": "/nowhere.toml"}, "COUNTERSIGN_ISSUERS_FILE /nowhere.toml: "),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(quiet_home, words, settings, refusal):
    ran = quiet_home.order(*words.split(), **settings)

    assert ran.code == REFUSED
    assert ran.refusal.startswith(refusal)


def test_a_server_without_its_issuers_file_names_the_setting(quiet_home):
    """A process of its own: a server takes over signals before it reads that file."""
    ran = quiet_home.run("serve", issuers_file="/nowhere.toml")

    assert ran.code == REFUSED
    assert ran.refusal.startswith("COUNTERSIGN_ISSUERS_FILE /nowhere.toml: ")


@pytest.mark.parametrize(
    "words",
    [
        "no-such-command",
        "org",
        "org add",
        "audit query --org acme --limit 0",
        "audit query --org acme --since yesterday",
        "bindings list --repository-id 42 --as-of noon",
        "audit query --org acme --until 2026-02-30",
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_how_it_is_used(quiet_home, words):
    ran = quiet_home.order(*words.split())

    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    assert "Usage: " in ran.err


def test_a_segment_that_cannot_be_read_is_exit_code_3(home):
    """Storage that does not answer may answer later: a script can tell it from a refusal."""
    home.ask("audit", "seal")
    (segment,) = (home.data_dir / "audit").rglob("*.parquet")
    segment.write_bytes(b"PAR1 and\nthen\nnothing")

    ran = home.order("audit", "query", "--org", "acme")

    assert ran.code == UNAVAILABLE
    assert segment.name in ran.refusal


def test_the_installed_command_is_this_one(home):
    """The console script, as a person starts it."""
    ran = home.run("--version")
    assert (ran.code, ran.notes) == (0, [])
    assert ran.out.startswith("countersign")


def test_sealing_by_hand_beside_a_server_changes_nothing_that_is_seen(home):
    server = home.serve()
    with server.client() as client:
        for number in range(5):
            home_body = {"issuer": ISSUER, "sub_pattern": f"repo:{number}", "repository_id": "7"}
            answer = client.post(bindings_path(), json=home_body | {"origin": "org_admin"})
            assert answer.status_code == 201
        before = all_entries(client, limit=2)
        assert home.ask("audit", "stats")["total"]["journal_rows"] == len(before) == 6

        with ThreadPoolExecutor(1) as pool:
            sealing = pool.submit(home.ask, "audit", "seal")
            while not sealing.done():
                assert all_entries(client, limit=2) == before
        assert sealing.result()["rows"] == 6
        assert len(sealing.result()["segments"]) == 1
        assert all_entries(client, limit=2) == before
        (stats,) = home.ask("audit", "stats")["organisations"]
        assert (stats["rows"], stats["journal_rows"], stats["segments"]) == (6, 0, 1)
        assert home.ask("audit", "seal") == {"segments": [], "rows": 0}
    assert home.ask("audit", "query", "--org", "acme")["entries"] == before
    assert server.stop() == 0


def test_a_search_finds_what_the_page_finds_and_names_what_no_row_has(home):
    home.ask("project", "add", "--org", "acme", "payments")
    (row,) = home.ask("audit", "query", "Project created", "--org", "acme")["entries"]
    assert row["event"] == "project_created"
    other = home.ask("audit", "query", "surface:cli -Project created", "--org", "acme")["entries"]
    assert other
    assert "project_created" not in {row["event"] for row in other}

    ran = home.order("audit", "query", "system:clu", "--org", "acme")
    assert "no row of acme has actor system:clu; the nearest is system:cli" in ran.err
    refused = home.order("audit", "query", "pakage:x", "--org", "acme")
    assert "did you mean package:" in refused.err


def test_pages_of_the_command_line_are_those_of_the_api(home):
    for name in ("a", "b", "c"):
        home.ask("project", "add", "--org", "acme", name)
    first = home.ask("audit", "query", "--org", "acme", "--limit", "3")
    with home.serve().client() as client:
        assert json.loads(json.dumps(all_entries(client)[:3])) == first["entries"]
        page = client.get(
            "/api/v1/admin/orgs/acme/audit", params={"limit": 3, "cursor": first["next_cursor"]}
        ).json()
    assert [row["event"] for row in page["entries"]] == ["org_created"]
    assert page["next_cursor"] is None
