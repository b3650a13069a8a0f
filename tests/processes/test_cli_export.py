"""`countersign audit export`: the same file as over HTTP, whole under its name or not there."""

import hashlib
import signal
from pathlib import Path

import pytest

from analytics.export.compression import Compression
from tests.analytics.readers import as_read, decompressed, read_file
from tests.budgets import only_full
from tests.interpreters import Process
from tests.processes.exports import DAYS, ROWS_A_DAY
from tests.processes.homes import DEADLINE_S, PLATFORM, Home, left_over

pytestmark = pytest.mark.slow

EXPORT = ("audit", "export", "--org", "acme")
FORMATS = ["csv", "json", "ndjson", "parquet"]


def entries(home: Home, *filters: str) -> list[dict]:
    return home.ask("audit", "query", "--org", "acme", "--limit", "1000", *filters)["entries"]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_holds_every_row_of_its_filters(home, file_format):
    for name in ("a", "=b", 'c"d'):
        home.ask("team", "add", "--org", "acme", name)
    filters = ("--event", "team_created", "--order", "asc")
    expected = entries(home, *filters)
    path = home.folder / f"audit.{file_format}"

    answer = home.ask(*EXPORT, "--format", file_format, "--raw", *filters, str(path))

    content = path.read_bytes()
    floor = answer["retention_floor"]
    assert read_file(content, file_format) == [as_read(row, file_format) for row in expected]
    assert answer == {
        "path": str(path),
        "export_id": answer["export_id"],
        "format": file_format,
        "filters": {"event": ["team_created"], "order": ["asc"]},
        "since": floor,
        "until": None,
        "retention_floor": floor,
        "rows": 3,
        "lost_rows": 0,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    assert left_over(home.folder) == []


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compress_makes_a_compressed_file(home, compression):
    plain, packed = home.folder / "plain", home.folder / "packed"
    event = ("--event", "org_created")
    home.ask(*EXPORT, "--format", "csv", *event, str(plain))
    answer = home.ask(*EXPORT, "--format", "csv", *event, "--compress", compression, str(packed))

    assert answer["sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert decompressed(packed.read_bytes(), Compression(compression)) == plain.read_bytes()
    refused = home.order(*EXPORT, "--format", "parquet", "--compress", compression, "x")
    assert refused.code == 2
    assert "compressed already" in refused.err


def test_it_is_audited_like_any_export(home):
    answer = home.ask(
        *EXPORT, "--format", "csv", "--event", "org_created", str(home.folder / "a.csv")
    )

    finished, begun = entries(home, "--event", "audit_exported", "--event", "audit_export_finished")
    for row in (begun, finished):
        assert (row["actor"], row["actor_source"]) == ("system:cli", "system")
        assert (row["verdict_source"], row["actor_tenant_id"]) == ("cli", PLATFORM)
        assert row["payload"]["export_id"] == answer["export_id"]
    assert begun["payload"]["filters"] == {"event": ["org_created"]}
    assert finished["payload"]["complete"] is True
    assert finished["payload"]["sha256"] == answer["sha256"]


def test_a_file_that_is_there_is_replaced_only_by_force(home):
    path = home.folder / "audit.csv"
    path.write_text("precious")

    assert "--force" in home.order(*EXPORT, "--format", "csv", str(path)).refusal
    assert path.read_text() == "precious"
    assert entries(home, "--event", "audit_exported") == []

    home.ask(*EXPORT, "--format", "csv", "--force", str(path))
    assert path.read_text().startswith("id,created_at,")


@pytest.mark.parametrize("name", ["no/such/folder/audit.csv", "/dev/null"])
def test_a_place_that_takes_no_file_is_refused_before_anything_is_recorded(home, name):
    """Not even by force may a file take the place of a device."""
    ran = home.order(*EXPORT, "--format", "csv", "--force", str(home.folder / name))

    assert ran.code == 1
    assert ran.refusal
    assert not Path("/dev/null").is_file()
    assert entries(home, "--event", "audit_exported") == []


def test_a_dash_is_standard_output(home):
    ran = home.run(*EXPORT, "--format", "ndjson", "--event", "org_created", "--json", "-")

    assert ran.code == 0
    assert [row["event"] for row in read_file(ran.out.encode(), "ndjson")] == ["org_created"]
    assert f'"sha256": "{hashlib.sha256(ran.out.encode()).hexdigest()}"' in ran.err


def test_a_terminal_shows_how_far_it_is(home):
    words = [*EXPORT, "--format", "csv", "--event", "org_created"]
    quiet = home.order(*words, str(home.folder / "quiet.csv"))
    shown = home.watch(*words, str(home.folder / "shown.csv"))

    assert quiet.err == ""
    assert b"Exporting acme" in shown
    assert b"Exporting 1 rows of acme: event=org_created; from 20" in shown
    assert b"none before retention floor 20" in shown
    assert b"1/1" in shown


def stopped_midway(home: Home) -> Process:
    """An export to `audit.json` that is suspended with some bytes written."""
    path = home.folder / "audit.json"

    def has_bytes() -> bool:
        return any(part.stat().st_size for part in home.folder.glob(".audit.json.*.part"))

    process = home.stop_midway(*EXPORT, "--format", "json", str(path), is_midway=has_bytes)
    assert not path.exists()
    return process


@only_full
def test_ctrl_c_midway_leaves_nothing(long_home):
    process = stopped_midway(long_home)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1
    assert b"Traceback" not in err
    assert not (long_home.folder / "audit.json").exists()
    assert left_over(long_home.folder) == []
    (finished,) = entries(long_home, "--event", "audit_export_finished")
    assert finished["payload"]["complete"] is False
    assert finished["payload"]["rows"] < DAYS * ROWS_A_DAY


def test_a_kill_midway_leaves_no_file_of_that_name(long_home):
    """What is left cannot be taken for an export, and does not stand in the way of the next."""
    process = stopped_midway(long_home)
    process.kill()
    process.communicate()

    assert not (long_home.folder / "audit.json").exists()
    assert len(left_over(long_home.folder)) == 1
    answer = long_home.ask(*EXPORT, "--format", "csv", str(long_home.folder / "audit.json"))
    assert answer["rows"] > DAYS * ROWS_A_DAY


def test_a_failure_midway_leaves_what_was_there(long_home):
    path = long_home.folder / "audit.ndjson"
    path.write_text("the last good one")
    oldest = min(long_home.data_dir.glob("audit/tenant=*/day=*/*.parquet"))
    content = bytearray(oldest.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 100_000] = b"\xff" * 100_000
    oldest.write_bytes(content)

    ran = long_home.order(*EXPORT, "--format", "ndjson", "--force", str(path))

    assert ran.code == 3, ran
    assert path.read_text() == "the last good one"
    assert left_over(long_home.folder) == []
