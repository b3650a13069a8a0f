"""`countersign policy` and `countersign blocklist`."""

import json
from pathlib import Path

import pytest

from tests.processes.homes import Home
from tests.service.packages.policy.osv_files import osv_record, osv_zip

pytestmark = pytest.mark.slow

POLICY = """
mode = "enforce"
cooldown = { min_age_days = 7 }
deny = [{ ecosystem = "npm", package = "left-pad", versions = "<1.3.0", id = "old" }]
"""


def written(home: Home, name: str, content: bytes | str) -> Path:
    file = home.folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_a_policy_is_set_shown_and_changed(home: Home):
    file = written(home, "policy.toml", POLICY)
    first = home.ask("policy", "set", "--org", "acme", str(file), "--revision", "0", "--yes")
    again = home.ask("policy", "set", "--org", "acme", str(file), "--yes")
    shown = home.ask("policy", "show", "--org", "acme")
    edited = written(home, "policy.json", json.dumps(shown["policy"] | {"mode": "audit"}))
    stale = home.order("policy", "set", "--org", "acme", str(edited), "--revision", "0", "--yes")
    home.ask("policy", "set", "--org", "acme", str(edited), "--revision", "1", "--yes")

    assert (first["revision"], first["is_changed"], again["is_changed"]) == (1, True, False)
    assert stale.code == 1
    assert "revision 1 by now" in stale.refusal
    assert home.ask("policy", "show", "--org", "acme")["policy"]["mode"] == "audit"
    assert (
        home.ask("policy", "show", "--org", "acme", "--revision", "1")["policy"] == first["policy"]
    )
    rows = home.ask("audit", "query", "--org", "acme", "--event", "policy_changed")["entries"]
    assert [row["actor"] for row in rows] == ["system:cli"] * 2


def test_what_a_policy_would_have_done_is_shown_first(home: Home):
    file = written(home, "policy.toml", POLICY)

    shown = home.ask("policy", "set", "--org", "acme", str(file), "--dry-run")
    printed = home.order("policy", "set", "--org", "acme", str(file), "--dry-run")

    assert shown["difference"]["after"].keys() >= {"cooldown", "deny"}
    assert "  + cooldown: 7 days" in printed.out
    assert shown["summary"].startswith("In the last 30 days this would have blocked")
    assert home.ask("policy", "show", "--org", "acme")["revision"] == 0


def test_a_release_is_checked(home: Home):
    home.ask("policy", "set", "--org", "acme", str(written(home, "policy.toml", POLICY)), "--yes")

    denied = home.order("policy", "check", "--org", "acme", "npm", "left-pad@1.2.0")
    young = home.order("policy", "check", "--org", "acme", "pypi", "requests==2.32.3")
    words = ("policy", "check", "--org", "acme", "pypi", "requests==2.32.3", "--published")
    old = home.order(*words, "2020-01-01T00:00:00Z")

    assert (denied.code, young.code, old.code) == (1, 0, 0)
    assert "left-pad 1.2.0: BLOCKED" in denied.out
    assert "denied by rule old" in denied.out
    assert "depends on its age" in young.out
    assert "requests 2.32.3: ALLOWED" in old.out


def test_a_wrong_policy_names_file_and_field(home: Home):
    file = written(home, "policy.toml", 'deny = [{ ecosystem = "npm", package = "a b" }]')

    refused = home.order("policy", "set", "--org", "acme", str(file))

    assert refused.code == 1
    assert "policy.toml: deny[0].package: an npm name" in refused.refusal


def test_a_blocklist_is_imported_and_blocks(home: Home):
    none = home.ask("blocklist", "status")
    good = written(home, "osv.zip", osv_zip([osv_record("MAL-1"), osv_record("X-1")]).getvalue())
    bad = written(
        home, "bad.zip", osv_zip([osv_record("MAL-2", "worse")], **{"x.json": b"{"}).getvalue()
    )

    first = home.ask("blocklist", "import", str(good))
    same = home.order("blocklist", "import", str(good))
    refused = home.order("blocklist", "import", str(bad))
    planned = home.order("blocklist", "import", str(bad), "--plan")
    second = home.order("blocklist", "import", str(bad), "--yes")
    empty = home.order("blocklist", "import", str(good), "--ids", "NONE-*")
    status = home.ask("blocklist", "status")

    assert none == {"current": None, "feeds": [], "imports": []}
    assert (first["advisories"], first["other"], first["is_unchanged"]) == (1, 1, False)
    assert "Nothing to change" in same.out
    counts = first["ecosystems"]["npm"]
    assert (counts["before"], counts["after"], counts["added"]) == (0, 1, 1)
    assert refused.code == 1
    assert "would remove 1 of 1 advisories of npm" in refused.refusal
    assert "--yes" in refused.refusal
    assert planned.code == 5
    assert "this is a plan" in planned.out
    assert second.code == 4
    assert "1 unreadable" in second.out
    assert empty.code == 1
    assert "nothing was imported" in empty.refusal
    assert status["current"]["file"] == "bad.zip"
    assert [one["state"] for one in status["imports"]] == ["imported", "imported"]
    assert home.order("policy", "check", "--org", "acme", "npm", "worse@1.0.0").code == 1
    assert home.order("policy", "check", "--org", "acme", "npm", "evil@1.0.0").code == 0


def test_a_feed_that_was_not_imported_for_long_is_named_until_it_is_removed(home: Home):
    file = written(home, "corp.zip", osv_zip([osv_record("C-1"), osv_record("C-2")]).getvalue())
    home.ask("blocklist", "import", str(file), "--feed", "corp", "--ids", "C-*")

    fresh = home.ask("blocklist", "status")["feeds"]
    (stale,) = home.ask("audit", "stats", blocklist_stale_s="0.001")["blocklist"]
    lines = home.order("blocklist", "status", blocklist_stale_s="0.001").out
    removed = home.ask("blocklist", "remove", "--feed", "corp", "--yes")
    again = home.order("blocklist", "remove", "--feed", "corp", "--yes")

    (state,) = fresh
    assert (state["feed"], state["ecosystem"], state["ids"]) == ("corp", "npm", ["C-*"])
    assert (state["advisories"], state["is_stale"], stale["is_stale"]) == (2, False, True)
    assert "STALE: import a new archive" in lines
    assert "No blocklist for pypi" in lines
    assert removed["removed"] == {"npm": 2}
    assert home.ask("blocklist", "status")["feeds"] == []
    assert again.code == 1
    assert "the blocklist has no feed corp" in again.refusal


def sbom(*purls: str, **changes: object) -> str:
    components = [{"type": "library", "name": "any", "purl": purl} for purl in purls]
    return json.dumps({"bomFormat": "CycloneDX", "components": components} | changes)


def test_a_bill_of_materials_is_compared_with_the_blocklist(home: Home):
    fixed = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.1"}]}]
    records = [
        osv_record("MAL-1", "Ev_il", "PyPI", versions=["1.0.0"], ranges=[]),
        osv_record("MAL-2", "@acme/evil"),
        osv_record("MAL-3", "quart", "PyPI", ranges=fixed),
    ]
    feed = written(home, "osv.zip", osv_zip(records).getvalue())
    listed = sbom(
        "pkg:pypi/ev-il@1.0.0?file_name=evil.whl",
        "pkg:pypi/quart@2.1",
        "pkg:npm/%40acme/evil@3.0.0#lib",
        "pkg:deb/debian/evil@1.0.0",
    )
    clean = written(home, "clean.json", sbom("pkg:pypi/ev-il@1.0.1", "pkg:npm/ev-il@1.0.0"))

    empty = home.order("blocklist", "check", str(clean))
    home.ask("blocklist", "import", str(feed))
    found = home.order("blocklist", "check", str(written(home, "listed.json", listed)), "--json")
    none = home.ask("blocklist", "check", str(clean))

    assert empty.code == 1
    assert "the blocklist is empty" in empty.refusal
    assert found.code == 1
    answer = json.loads(found.out)
    assert (answer["compared"], answer["others"]) == (3, 1)
    assert [(entry["package"], entry["advisories"]) for entry in answer["findings"]] == [
        ("@acme/evil", ["MAL-2"]),
        ("ev-il", ["MAL-1"]),
    ]
    assert none == {"compared": 2, "others": 0, "findings": []}


def test_past_installs_that_an_advisory_affects_are_shown(home: Home):
    """Of one organisation or of all; an id that nothing has is refused."""
    feed = written(home, "feed.zip", osv_zip([osv_record("MAL-1")]).getvalue())
    none = home.ask("blocklist", "affected")["orgs"]
    home.ask("blocklist", "import", str(feed))
    found = home.ask("blocklist", "affected", "MAL-1")["orgs"]
    (of_acme,) = home.ask("blocklist", "affected", "MAL-1", "--org", "acme")["orgs"]
    refused = home.order("blocklist", "affected", "MAL-2", "--org", "acme")

    assert {each["org"] for each in none} == {each["org"] for each in found}
    assert all(each["affected"] == [] for each in none)
    assert (of_acme["is_in_force"], of_acme["affected"], of_acme["entries"]) == (True, [], [])
    assert "no advisory, deny rule or withdrawn release has the id MAL-2" in refused.refusal
