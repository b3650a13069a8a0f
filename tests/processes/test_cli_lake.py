"""`countersign lake`: what it says to people, to scripts, and by its exit code."""

import fcntl
import json

import pytest

from tests.processes.homes import Home

pytestmark = pytest.mark.slow


@pytest.fixture
def sealed_home(home):
    """Acme with one segment of one row."""
    home.ask("audit", "seal")
    return home


def test_a_table_is_published_once_for_each_change(sealed_home):
    (first,) = sealed_home.ask("lake", "publish")["tables"]
    (second,) = sealed_home.ask("lake", "publish")["tables"]

    folder = sealed_home.data_dir / "lake" / "iceberg" / "audit"
    assert (first["format"], first["org"]) == ("iceberg", None)
    assert first["location"] == f"file://{folder}"
    assert (first["added"], first["files"], first["rows"]) == (1, 1, 1)
    assert (first["is_new_snapshot"], second["is_new_snapshot"]) == (True, False)
    assert second["snapshot"] == first["snapshot"]


def test_publishing_waits_for_the_process_that_changes_segments(sealed_home):
    """A service holds the lease for a short time now and then."""
    with (sealed_home.data_dir / "segments.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = sealed_home.begin("lake", "publish", "--json")
        said = process.stderr.readline()
    out, err = process.communicate()

    assert said == b"Another process is changing segments: waiting up to 60 s.\n"
    assert process.returncode == 0
    assert err.startswith(b'{"target": ')
    (table,) = json.loads(out)["tables"]
    assert table["rows"] == 1


def test_the_status_says_where_tables_are_and_what_they_lack(sealed_home):
    sealed_home.ask("lake", "publish", "--format", "iceberg", "--format", "delta")
    sealed_home.ask("apikey", "issue", "--org", "acme", "--name", "ci", "--scope", "audit:ingest")

    delta, iceberg = sealed_home.ask("lake", "status")["tables"]

    assert delta["location"] == f"file://{sealed_home.data_dir / 'audit'}"
    assert iceberg["version"].startswith(iceberg["location"])
    for table in (delta, iceberg):
        assert (table["rows"], table["lag_rows"]) == (1, 1)
        assert table["lag_seconds"] > 0
        assert table["complete_through_seq"] == 1
    text = sealed_home.order("lake", "status").out
    assert "rows behind" in text
    assert "delta" in text


def test_each_organisation_can_have_a_table_of_its_own(sealed_home):
    (table,) = sealed_home.ask("lake", "publish", "--per-tenant")["tables"]

    assert table["org"] == "acme"
    assert sealed_home.ask("lake", "expire")["tables"] == [
        {"format": "iceberg", "org": "acme", "snapshots": 0, "metadata_files": 0}
    ]


def test_without_a_table_the_answers_say_how_to_publish_one(home):
    for command in ("status", "expire"):
        ran = home.order("lake", command)
        assert (ran.code, ran.out) == (0, "No table is published: `countersign lake publish`.\n")


def test_a_dropped_table_is_gone(sealed_home):
    sealed_home.ask("lake", "publish", "--format", "delta")
    log = sealed_home.data_dir / "audit" / "_delta_log"
    assert log.is_dir()

    ran = sealed_home.order("lake", "drop", "--format", "delta")

    assert ran.out == "Dropped 1 tables.\n"
    assert not log.exists()
    assert sealed_home.ask("lake", "status") == {"tables": []}


def test_an_unknown_format_is_refused(home):
    ran = home.order("lake", "publish", "--format", "hudi")

    assert ran.code == 2
    assert "'hudi' is not one of 'iceberg', 'delta'" in ran.err


def test_the_check_finds_nothing_wrong_with_a_log_beside_segments(sealed_home):
    """Delta's readers want it there."""
    sealed_home.ask("lake", "publish", "--format", "delta")

    checked = sealed_home.ask("audit", "check")

    assert (checked["findings"], checked["notes"]) == ([], [])


@pytest.mark.parametrize("name", ["iceberg", "delta"])
def test_a_restored_data_dir_has_tables_of_its_own(sealed_home, name):
    (first,) = sealed_home.ask("lake", "publish", "--format", name)["tables"]
    target = sealed_home.folder / "backup"
    sealed_home.ask("backup", str(target))
    (folder := sealed_home.folder / "another").mkdir()
    other = Home(folder)
    other.ask("restore", str(target))
    assert other.ask("lake", "expire")["tables"][0]["snapshots"] == 0

    (restored,) = other.ask("lake", "publish", "--format", name)["tables"]

    assert restored["location"] == first["location"].replace(
        str(sealed_home.data_dir), str(other.data_dir)
    )
    assert (restored["added"], restored["rows"]) == (1, 1)
    (again,) = sealed_home.ask("lake", "publish", "--format", name)["tables"]
    assert (again["is_new_snapshot"], again["snapshot"]) == (False, first["snapshot"])
    other.end()
