"""`countersign audit check`: what it says to people, to scripts, and by its exit code."""

import json

import pytest

from tests.processes.homes import Home, segment_of

pytestmark = pytest.mark.slow

CHECK = ("audit", "check")
FOUND, REFUSED, UNAVAILABLE = 1, 1, 3


@pytest.fixture
def sealed_home(home: Home) -> Home:
    """Acme with one segment."""
    home.ask("audit", "seal")
    return home


def test_exit_code_0_says_that_all_is_well(sealed_home):
    ran = sealed_home.order(*CHECK)

    assert (ran.code, ran.notes) == (0, [])
    assert ran.out == "Checked 1 rows in 1 segments and 0 journal batches: no findings.\n"
    assert sealed_home.ask(*CHECK, "--org", "acme") == {
        "segments": 1,
        "batches": 0,
        "rows": 1,
        "findings": [],
        "notes": [],
    }


def test_imported_rows_are_as_they_should_be(home):
    """They count from 0 in their files, and from a base in the catalog."""
    file = home.folder / "rows.ndjson"
    rows = [
        {"created_at": f"2026-01-{1 + n % 3:02}T12:00:{n:02}Z", "event": "install_allowed"}
        | {"payload": {}, "packageName": f"p{n}", "decision": "ALLOWED"}
        for n in range(30)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    home.ask("audit", "import", "--org", "acme", str(file))

    said = home.ask(*CHECK)

    assert (said["findings"], said["notes"]) == ([], [])
    assert said["segments"] == 3
    assert said["rows"] > 30


def test_exit_code_1_says_that_something_was_found(sealed_home):
    """One line for each, on standard output; nothing failed, so standard error is silent."""
    path = segment_of(sealed_home)
    path.unlink()

    ran = sealed_home.run(*CHECK)
    scripted = sealed_home.order(*CHECK, "--json")

    assert (ran.code, ran.err) == (scripted.code, scripted.err) == (FOUND, "")
    line, total = ran.out.splitlines()
    assert line.startswith(f"finding: missing_file: acme {path.parent.name[4:]} {path.stem}: ")
    assert line.endswith(": run `countersign audit restore-segment`")
    assert total.endswith(": 1 findings.")
    (finding,) = scripted.json["findings"]
    assert finding | {"detail": ""} == {
        "segment": path.stem,
        "org": "acme",
        "day": path.parent.name[4:],
        "kind": "missing_file",
        "detail": "",
        "remedy": "run `countersign audit restore-segment`",
    }


def test_a_segment_that_cannot_be_read_is_a_finding_and_no_failure(sealed_home):
    """Storage answered: what it said is wrong. Trying again would not help."""
    path = segment_of(sealed_home)
    path.write_bytes(b"\xff" * path.stat().st_size)

    ran = sealed_home.order(*CHECK, "--json")

    assert ran.code == FOUND
    assert [line["kind"] for line in ran.json["findings"]] == ["wrong_sha256"]
    assert [line["remedy"] for line in ran.json["findings"]] == [
        "run `countersign audit restore-segment`"
    ]


def test_what_a_sweep_removes_is_said_but_is_no_finding(sealed_home):
    """A crash left it, or a process is still writing it: there is nothing to do."""
    path = segment_of(sealed_home)
    path.with_name("seg_next.pending").write_bytes(b"PAR1")

    for grace_s in ("3600", "0.000001"):
        ran = sealed_home.order(*CHECK, orphan_grace_s=grace_s)
        assert ran.code == 0
        assert ran.out.startswith("note: unfinished_file: acme ")
        assert ran.out.endswith(": no findings, 1 notes.\n")


def test_what_no_sweep_removes_is_a_finding_at_once(sealed_home):
    """The service did not write it, so it does not remove it."""
    path = segment_of(sealed_home)
    path.with_suffix(".copy").write_bytes(b"PAR1")

    ran = sealed_home.order(*CHECK)

    assert ran.code == FOUND
    assert ran.out.startswith("finding: foreign_file: acme ")


def test_what_keeps_it_from_checking_is_a_failure(quiet_home):
    unknown = quiet_home.order(*CHECK, "--org", "missing")
    assert (unknown.code, unknown.refusal) == (REFUSED, "Org not found")

    locked = quiet_home.order(*CHECK, database_url="sqlite+aiosqlite:////nowhere/at/all.db")
    assert locked.code == UNAVAILABLE
    assert locked.refusal.startswith("storage is unavailable")


def test_a_terminal_shows_how_far_it_is(sealed_home):
    shown = sealed_home.watch(*CHECK)

    assert b"Checking" in shown
    assert b"1/1" in shown
