"""`countersign audit restore-segment`: what it says to people, to scripts, and by its exit code."""

import pytest

from tests.processes.homes import Home, eventually, segment_of

pytestmark = pytest.mark.slow

RESTORE = ("audit", "restore-segment")


@pytest.fixture
def damaged_home(home: Home) -> Home:
    """Acme with one segment, which is damaged, and a backup from before."""
    home.ask("audit", "seal")
    home.ask("backup", str(home.folder / "backup"))
    path = segment_of(home)
    path.write_bytes(b"\xff" * path.stat().st_size)
    return home


def test_a_damaged_segment_is_restored_and_the_answer_says_from_where(damaged_home):
    path, backup = segment_of(damaged_home), str(damaged_home.folder / "backup")

    ran = damaged_home.order(*RESTORE, "--all", "--from", backup)
    again = damaged_home.ask(*RESTORE, path.stem, "--from", backup)

    assert ran.code == 0
    first, total = ran.out.splitlines()
    assert first.startswith(f"restored: acme {path.parent.name[4:]} {path.stem} (1 rows) from")
    assert total == "Restored 1 segments; 0 were whole."
    assert again == {"segments": [], "whole": 1, "restored": 0, "lost": 0, "removed": 0}
    assert damaged_home.order("audit", "check").code == 0
    (row,) = damaged_home.ask(
        "audit", "query", "--org", "acme", "--event", "audit_segment_restored"
    )["entries"]
    assert row["payload"]["segment_id"] == path.stem


def test_exit_code_1_says_that_rows_are_lost(damaged_home):
    path = segment_of(damaged_home)

    ran = damaged_home.run(*RESTORE, "--org", "acme", "--day", path.parent.name[4:])
    shown = damaged_home.ask("audit", "stats")["verification"]

    assert ran.code == 1
    assert f"lost: acme {path.parent.name[4:]} {path.stem} (1 rows): wrong_sha256" in ran.out
    assert "NOT RESTORED: 1 segments with 1 rows. Give --from" in ran.out
    assert [line["segment"] for line in shown["damaged"]] == [path.stem]


def test_what_to_restore_has_to_be_said(damaged_home):
    for given in ((), ("seg_a", "--all")):
        assert damaged_home.order(*RESTORE, *given).code == 2
    unknown = damaged_home.order(*RESTORE, "seg_unknown")
    assert (unknown.code, "is no segment of the catalog" in unknown.refusal) == (1, True)


def test_a_segment_without_a_copy_is_given_up(damaged_home):
    path = segment_of(damaged_home)
    give_up = ("audit", "give-up", path.stem)

    unsure = damaged_home.run(*give_up)
    sure = damaged_home.run(*give_up, "--yes")
    stats = damaged_home.run("audit", "stats")
    again = damaged_home.run(*give_up, "--yes")
    file = damaged_home.folder / "rows.csv"
    export = ("audit", "export", "--org", "acme", "--format", "csv", str(file))
    exported = damaged_home.run(*export)

    place = f"acme {path.parent.name[4:]} {path.stem}"
    assert unsure.code == 1
    assert "Give up 1 audit rows permanently?" in unsure.err
    assert sure.code == 0
    assert f"lost: {place} (1 rows, seq 1 to 1): wrong_sha256" in sure.out
    assert f"LOST: {place}: 1 rows, given up at" in stats.out
    assert damaged_home.run("audit", "check").code == 0
    assert "LOST: 1 rows of these days." in exported.out
    assert again.code == 1
    assert "is no segment of the catalog here" in again.err


def test_a_whole_segment_is_not_given_up(home: Home):
    home.ask("audit", "seal")

    refused = home.run("audit", "give-up", segment_of(home).stem, "--yes")

    assert refused.code == 1
    assert "is whole: there is nothing to give up" in refused.err


def test_damage_that_a_request_meets_is_named_within_seconds(damaged_home):
    server = damaged_home.serve(workers="2")
    with server.client() as client:
        answer = client.get("/api/v1/admin/orgs/acme/audit?source_ip=192.0.2.99")
    assert answer.status_code == 503
    assert segment_of(damaged_home).stem in answer.json()["error"]

    eventually(
        lambda: damaged_home.ask("audit", "stats")["verification"]["damaged"],
        "the damage among the statistics",
    )
    for _ in range(4):
        with server.client() as client:  # a connection of its own, to either process
            eventually(lambda c=client: c.get("/readyz").json().get("damaged") == 1, "readiness")
