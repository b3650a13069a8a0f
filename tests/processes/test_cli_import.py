"""`countersign audit import`: files, lists and standard input; what is said, and what is left."""

import fcntl
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest

from analytics.model.instants import format_us
from service.cli.imports import LISTED_MAX, SHOWN_MAX
from tests.budgets import only_full, sample
from tests.processes.command_line import Ran
from tests.processes.homes import DEADLINE_S, PLATFORM, Home, eventually

pytestmark = pytest.mark.slow

IMPORT = ("audit", "import", "--org", "acme")
YESTERDAY = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)


def line(name: str = "x", at: datetime = YESTERDAY, **changes: Any) -> str:
    item = {"created_at": format_us(at), "event": "install_allowed", "packageName": name}
    return json.dumps(item | changes) + "\n"


def write(home: Home, name: str, content: str | bytes) -> str:
    path = home.folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def told(home: Home, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """What `audit import --json` says of its files."""
    ran = home.order(*IMPORT, "--json", *words)
    assert (ran.code, ran.notes) == (code, []), ran
    assert ran.json["org"] == "acme"
    return ran.json["files"]


def piped(home: Home, content: bytes, *words: str) -> Ran:
    """The command with `content` as standard input."""
    return home.order(*IMPORT, *words, given=content)


def entries(home: Home, *filters: str, org: str = "acme") -> list[dict[str, Any]]:
    return home.ask("audit", "query", "--org", org, "--limit", "1000", *filters)["entries"]


def packages(home: Home) -> list[str]:
    return sorted(row["packageName"] for row in entries(home, "--event", "install_allowed"))


def spooled(home: Home) -> list[Path]:
    return list((home.data_dir / "tmp").iterdir())


@sample(2)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("audit.csv", ("--format", "csv")),
        ("audit.csv.gz", ("--format", "csv", "--compress", "gzip")),
        ("audit.csv.zst", ("--format", "csv", "--compress", "zstd")),
        ("audit.ndjson", ("--format", "ndjson")),
        ("audit.jsonl.gz", ("--format", "ndjson", "--compress", "gzip")),
        ("audit.parquet", ("--format", "parquet")),
    ],
)
def test_an_exported_file_can_be_imported_again(home, name, words):
    home.ask("org", "add", "other", "--tier", "org")
    for team in ("a", "=b", 'c"d', "@e"):
        home.ask("team", "add", "--org", "acme", team)
    path = str(home.folder / name)
    filters = ("--event", "team_created", "--order", "asc")
    exported = home.ask("audit", "export", "--org", "acme", *words, *filters, path)
    into_other = ("audit", "import", "--org", "other", "--json", path)

    (done,) = home.order(*into_other).json["files"]
    (again,) = home.order(*into_other).json["files"]

    assert (done["status"], done["rows"], done["sha256"]) == ("imported", 4, exported["sha256"])
    assert (again["status"], again["skipped"], again["rows"]) == ("skipped", True, 0)
    sent = entries(home, "--event", "team_created")
    got = entries(home, "--event", "team_created", org="other")
    for was, now in zip(sent, got, strict=True):
        kept = {"id": now["id"], "tenant_id": now["tenant_id"], "received_at": now["received_at"]}
        assert now == was | kept
        assert now["id"] > was["id"]


def test_a_refused_row_refuses_its_file_and_no_other(home):
    good = write(home, "good.ndjson", line("a"))
    bad = write(home, "bad.ndjson", line("b") + "x\n" + line("c", event="nothing"))
    gone = str(home.folder / "gone.csv")
    ran = home.order(*IMPORT, bad, gone, good, good)

    assert ran.code == 1
    assert ran.notes == []
    assert [text for text in ran.out.splitlines() if not text.startswith("  ")] == [
        f"{bad}: nothing was imported: 2 rows refused (--partial imports the others)",
        f"{gone}: failed, nothing was imported: [Errno 2] No such file or directory: '{gone}'",
        f"{good}: 1 rows of 1 days imported",
        next(text for text in ran.out.splitlines() if f"{good}: skipped: the same content" in text),
    ]
    assert ran.out.splitlines()[1].startswith("  line 2: the line must be a JSON object")
    assert ran.out.splitlines()[2].startswith("  line 3: event must be one of ")
    assert packages(home) == ["a"]


def test_partial_keeps_the_good_rows(home):
    path = write(home, "part.ndjson", line("a") + "x\n" + line("b"))

    (done,) = told(home, "--partial", path)

    assert (done["status"], done["rows"], done["refused"]) == ("imported", 2, 1)
    assert [one["line"] for one in done["refused_rows"]] == [2]
    assert packages(home) == ["a", "b"]


def test_refused_rows_are_shown_in_part_and_reported_in_full(home):
    """A screen cannot usefully show ten thousand lines."""
    count = LISTED_MAX + 500
    path = write(home, "bad.ndjson", line() + "{}\n" * count)
    report = home.folder / "report.ndjson"

    ran = home.order(*IMPORT, "--report", str(report), path)
    (done,) = told(home, path, code=1)

    assert ran.out.count("\n  line ") == SHOWN_MAX
    assert ran.out.endswith(f"  and {count - SHOWN_MAX} more (--report FILE lists all)\n")
    assert (len(done["refused_rows"]), done["refused"]) == (LISTED_MAX, count)
    lines = [json.loads(text) for text in report.read_text().splitlines()]
    assert [one["line"] for one in lines] == list(range(2, count + 2))
    assert lines[0] == {"file": path, "line": 2, "error": "event is required"}
    assert "--force" in home.order(*IMPORT, "--report", str(report), path).refusal


def test_what_a_file_says_cannot_write_on_the_terminal(home):
    path = write(home, "\x1b[2J.ndjson", line() + '{"\\u001b[31m": 1}\n')
    ran = home.order(*IMPORT, path)

    assert "\x1b" not in ran.out
    assert "\\x1b[31m" in ran.out


@only_full
def test_standard_input_is_spooled_and_gone_afterwards(home):
    first = home.run(*IMPORT, "--format", "ndjson", "-", given=line("a").encode())
    again = piped(home, line("a").encode(), "--format", "ndjson", "--json", "-")
    packed = piped(home, gzip.compress(line("b").encode()), "--format", "ndjson", "-")
    bad = piped(home, b"x\n", "--format", "ndjson", "-")

    assert (first.code, first.out, first.notes) == (0, "-: 1 rows of 1 days imported\n", [])
    assert again.json["files"][0]["status"] == "skipped"
    assert (packed.code, bad.code) == (0, 1)
    assert packages(home) == ["a", "b"]
    assert spooled(home) == []


def test_a_list_names_files(home):
    paths = [write(home, f"{name}.ndjson", line(name)) for name in ("a", "b", "ü c")]
    listed = write(home, "list", f"{paths[0]}\n\n{paths[2]}\r\n")

    assert [one["file"] for one in told(home, "--files-from", listed)] == [paths[0], paths[2]]
    ran = piped(home, "\n".join(paths).encode(), "--json", "--files-from", "-")

    assert [one["status"] for one in ran.json["files"]] == ["skipped", "imported", "skipped"]
    assert packages(home) == ["a", "b", "ü c"]


@pytest.mark.parametrize("content", [b"\xff\n", b"a\0b\n", b"-\n", b"a\n" * 100_001])
def test_a_list_that_is_none_is_refused(home, content):
    ran = home.order(*IMPORT, "--files-from", write(home, "list", content))

    assert (ran.code, ran.refusal.split("/")[-1]) == (
        1,
        "list must list file names in UTF-8, one per line, at most 100000 of them",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name at least one FILE"),
        (("-",), "use --format"),
        (("--format", "csv", "-", "-"), "only once"),
        (("--format", "csv", "--files-from", "-", "-"), "only once"),
        (("--format", "json", "x"), "'json' is not one of"),
    ],
)
def test_wrong_usage_is_told_as_such(quiet_home, words, said):
    ran = quiet_home.order(*IMPORT, *words)

    assert ran.code == 2
    assert said in ran.err


HOSTILE = {
    "empty.csv": b"",
    "empty.parquet": b"",
    "empty.ndjson.gz": b"",
    "nul.ndjson": line().encode().replace(b"x", b"\0"),
    "nul.csv": b"created_at,event\nx,a\0b\n",
    "bytes.ndjson": b"\xff\xfe" * 50,
    "bytes.csv": b"\xff\xfe" * 50,
    "bytes.parquet": os.urandom(2_000),
    "magic.parquet": b"PAR1" + bytes(100) + b"PAR1",
    "cut.ndjson": line().encode()[:-9],
    "cut.csv": b"created_at,event\n2026-01-01T00:00:00Z,install_al",
    "cut.ndjson.gz": gzip.compress(line().encode() * 50)[:-9],
    "not.csv.zst": b"created_at,event\n",
    "quote.csv": b'created_at,event\n"x,y\n',
    "long.ndjson": b"[" * (17 * 2**20),
    "deep.ndjson": b'{"payload":' * 10_000,
    "columns.csv": b"created_at,event,surprise\n",
    "header.csv": b"event\n",
    "array.json": b"[]",
    "noname": b"x",
}


def test_hostile_files_are_one_line_each_and_no_traceback(quiet_home):
    """Whatever stands in a file, or does not."""
    paths = [write(quiet_home, name, content) for name, content in HOSTILE.items()]
    folder = quiet_home.folder / "folder.csv"
    folder.mkdir(exist_ok=True)
    ran = quiet_home.order(*IMPORT, "--json", *paths, str(folder), "/dev/null", "x" * 5_000)

    assert (ran.code, ran.notes) == (1, [])
    files = ran.json["files"]
    assert [one["file"] for one in files if one["status"] not in {"failed", "refused"}] == []
    assert all(one["error"] or one["refused_rows"] for one in files)
    assert all("\n" not in (one["error"] or "") for one in files)
    assert spooled(quiet_home) == []


def test_an_organisation_that_is_not_there_is_refused(quiet_home):
    ran = quiet_home.order("audit", "import", "--org", "missing", "x.csv")

    assert (ran.code, ran.refusal) == (1, "Org not found")


def test_the_import_is_recorded_as_the_operators(home):
    content = line("a") + line("b", YESTERDAY - timedelta(days=3))
    told(home, write(home, "history.ndjson", content))
    (row,) = entries(home, "--event", "audit_imported")

    assert (row["actor"], row["verdict_source"]) == ("system:cli", "cli")
    assert row["actor_tenant_id"] == PLATFORM
    assert row["payload"]["source"] == "history.ndjson"
    assert row["payload"]["sha256"] == hashlib.sha256(content.encode()).hexdigest()
    (old,) = entries(home, "--package", "b")
    assert old["created_at"] < format_us(YESTERDAY) < old["received_at"]


def test_while_another_process_changes_segments_it_waits(home):
    path = write(home, "a.ndjson", line("a"))
    with ThreadPoolExecutor(1) as pool, (home.data_dir / "segments.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = home.order(*IMPORT, "--wait", "0.1", path)
        assert ran.code == 3
        assert "another process is changing segments; try again" in ran.out
        waiting = pool.submit(told, home, path)
        time.sleep(0.5)  # the lock goes while it waits, or before it has looked: both are fine
    (done,) = waiting.result(DEADLINE_S)

    assert done["rows"] == 1


def test_of_two_processes_with_one_file_one_imports_it(home):
    path = write(home, "a.ndjson", "".join(line(f"p{number}") for number in range(900)))
    both = [home.begin(*IMPORT, "--json", path) for _ in range(2)]
    said = [json.loads(one.communicate(timeout=DEADLINE_S)[0])["files"][0] for one in both]

    assert sorted(one["status"] for one in said) == ["imported", "skipped"]
    assert len(packages(home)) == 900


def many_days(home: Home, per_day: int = 1_000, days: int = 60) -> str:
    """A file that takes a while."""
    days_of = (YESTERDAY - timedelta(days=day) for day in range(days))
    lines = (line(f"p{n}", at) for at in days_of for n in range(per_day))
    return write(home, "many.ndjson", "".join(lines))


@only_full
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=only_full)])
def test_an_import_that_is_ended_midway_imports_nothing_and_can_be_repeated(home, how):
    path = many_days(home)
    process = home.begin(*IMPORT, path)
    pattern = "audit/tenant=*/day=*/*.parquet"
    eventually(lambda: list(home.data_dir.glob(pattern)), "the first segment", every_s=0.001)
    process.send_signal(how)
    _, err = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == (-9 if how is signal.SIGKILL else 1)
    assert b"Traceback" not in err
    assert packages(home) == []
    assert entries(home, "--event", "audit_imported") == []
    assert bool(list(home.data_dir.glob(pattern))) is (how is signal.SIGKILL)
    (done,) = told(home, path)
    assert (done["rows"], len(done["days"])) == (60_000, 60)
    (row,) = [one for one in home.ask("audit", "stats")["organisations"] if one["org"] == "acme"]
    assert row["rows"] == 60_000 + 2


def test_a_terminal_shows_the_progress_of_an_import(home):
    path = write(home, "a.ndjson", line("a"))

    assert b"Importing" in home.watch(*IMPORT, path)
    assert home.order(*IMPORT, path).notes == []


def test_a_service_that_runs_shows_the_rows_at_once(home):
    with home.serve(seal_rows="1", seal_interval_s="0.05").client() as client:
        told(home, write(home, "a.ndjson", line("a") * 3))
        page = client.get("/api/v1/admin/orgs/acme/audit", params={"package": "a"}).json()

    assert len(page["entries"]) == 3


def unread_bytes(pipe: IO[bytes]) -> int:
    """How many bytes of those written to `pipe` its reader has not taken yet."""
    answer = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


def test_ctrl_c_ends_an_import_whose_input_never_comes(home):
    """No thread may go on waiting for the process at the other end of the pipe."""
    process = home.begin(*IMPORT, "--format", "ndjson", "-", stdin=subprocess.PIPE)
    process.stdin.write(b" ")
    process.stdin.flush()
    eventually(lambda: not unread_bytes(process.stdin), "standard input is being read")

    process.send_signal(signal.SIGINT)

    try:
        assert process.wait(DEADLINE_S) == 130
    finally:
        process.kill()
        process.communicate()
