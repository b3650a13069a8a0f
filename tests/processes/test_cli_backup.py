"""`countersign backup` and `restore` as processes: beside a service, killed, out of room."""

import resource
import signal
from pathlib import Path

import pytest

from service.audit.backup.manifest import DATABASE, DUMP
from tests.budgets import only_full
from tests.conftest import bindings_path
from tests.databases import IS_POSTGRESQL
from tests.interpreters import Process, run_module
from tests.processes.homes import CLI, DEADLINE_S, Home, all_bindings, left_over

pytestmark = pytest.mark.slow

REFUSED, UNAVAILABLE, INCOMPLETE = 1, 3, 4


def another(home: Home) -> Home:
    """A home beside `home` whose data dir is not there."""
    folder = home.folder / "another"
    folder.mkdir()
    return Home(folder)


def test_a_backup_comes_back_on_another_machine(home):
    target = home.folder / "backup"
    taken = home.ask("backup", str(target))
    other = another(home)

    restored = other.ask("restore", str(target))

    assert taken == {
        "path": str(target),
        "taken_at": taken["taken_at"],
        "schema": taken["schema"],
        "rows": 1,
        "files": 1,
        "bytes": (target / (DUMP if IS_POSTGRESQL else DATABASE)).stat().st_size,
        "missing": [],
        "is_linked": False,
    }
    same = ("taken_at", "schema", "rows", "files", "bytes", "missing")
    assert restored == {name: taken[name] for name in same} | {
        "data_dir": str(other.data_dir),
        "moved_to": None,
    }
    assert other.ask("audit", "check")["findings"] == []
    assert other.listed("org", "list") == home.listed("org", "list")
    other.end()


@pytest.mark.parametrize("options", [["--link", "--by-version"], ["--by-version", "--link"]])
def test_two_ways_at_once_are_refused_before_a_data_dir_is_looked_for(empty_home, options):
    refused = empty_home.order("backup", *options, str(empty_home.folder / "backup"))

    assert refused.code == 2
    assert "give --link or --by-version" in refused.err


@pytest.mark.sqlite_only(reason="restores over what is there; see test_postgresql.py")
def test_a_backup_without_a_damaged_segment_says_so_when_it_is_taken_and_put_back(home):
    home.ask("audit", "seal")
    (segment,) = home.data_dir.rglob("*.parquet")
    segment.write_bytes(segment.read_bytes()[:-1])
    name = segment.relative_to(home.data_dir).as_posix()
    lost = [{"path": name, "rows": 1, "kind": "wrong_size"}]
    other = another(home)

    said = home.order("backup", str(home.folder / "backup"))
    told = home.order("backup", "--json", str(home.folder / "second"))
    back = other.order("restore", str(home.folder / "backup"))
    again = other.order("restore", "--json", "--force", str(home.folder / "second"))

    for ran in (said, back):
        assert (ran.code, ran.notes) == (INCOMPLETE, [])
        assert "INCOMPLETE: 1 segments with 1 rows were missing or damaged" in ran.out
        assert f"  {name}: wrong_size, 1 rows\n" in ran.out
    for ran in (told, again):
        assert (ran.code, ran.notes) == (INCOMPLETE, [])
        assert (ran.json["missing"], ran.json["rows"]) == (lost, 0)
    checked = other.order("audit", "check", "--json")
    assert [finding["kind"] for finding in checked.json["findings"]] == ["missing_file"]
    assert segment.name in other.order("audit", "query", "--org", "acme").refusal
    other.end()


@pytest.mark.sqlite_only(reason="restores over what is there; see test_postgresql.py")
def test_people_are_told_what_is_not_in_it(home):
    """A secret that is nowhere else would be lost with the disk."""
    kept = {"admin_token": "", "secret_key": "", "metrics_token": ""}
    home.ask("init", **kept)
    ran = home.order("backup", str(home.folder / "backup"), **kept)
    assert (ran.code, ran.notes) == (0, [])
    assert "Not included: admin_token, secret_key, metrics_token." in ran.out

    whole = home.order("backup", "--with-secrets", str(home.folder / "whole"), **kept)
    assert "Not included" not in whole.out
    other = another(home)
    bare = other.order("restore", str(home.folder / "backup"))
    assert "The backup has no secrets" in bare.out
    again = other.order("restore", "--force", str(home.folder / "whole"))
    assert "No secrets" not in again.out
    assert "The previous data dir is now " in again.out
    assert (other.data_dir / "admin_token").read_text() == (
        home.data_dir / "admin_token"
    ).read_text()
    other.end()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("backup {data}/inside", "{data}/inside and the data dir lie within each other"),
        ("backup {folder}", "{folder} is there already"),
        ("restore {folder}/nothing", "{folder}/nothing is no backup"),
    ],
)
def test_a_refusal_is_one_line(home, words, refusal):
    places = {"data": home.data_dir, "folder": home.folder}
    ran = home.order(*words.format(**places).split())

    assert ran.code == REFUSED
    assert ran.refusal.startswith(refusal.format(**places))


def test_a_database_that_is_no_file_is_refused(home):
    """Another server's database has its own ways to be backed up."""
    ran = home.order(
        "restore", str(home.folder), database_url="postgresql+asyncpg://ada:secret@db/x"
    )

    assert ran.code == REFUSED
    assert "secret" not in ran.refusal


@pytest.mark.sqlite_only(reason="a file elsewhere")
def test_a_database_outside_the_data_dir_is_backed_up(home):
    """It is what the settings name, not what usually lies there."""
    url = f"sqlite+aiosqlite:///{home.folder / 'elsewhere.db'}"
    home.ask("init", database_url=url)
    home.ask("org", "add", "elsewhere", database_url=url)
    home.ask("backup", str(home.folder / "backup"), database_url=url)
    other = another(home)

    refused = other.order("restore", str(home.folder / "backup"), database_url=url)
    assert "names a database outside the data dir" in refused.refusal
    other.ask("restore", str(home.folder / "backup"))

    assert [org["slug"] for org in other.listed("org", "list")] == ["elsewhere"]
    other.end()


@pytest.mark.sqlite_only(reason="the file's lock tells")
def test_the_data_dir_of_a_running_service_is_not_moved_from_under_it(home):
    """It would go on answering, and all it took from then on would be lost."""
    target = home.folder / "backup"
    server = home.serve()
    home.ask("backup", str(target))

    refused = home.order("restore", "--force", str(target))
    assert (refused.code, refused.refusal) == (
        REFUSED,
        f"{home.data_dir} is in use: stop the service first",
    )
    with server.client() as client:
        assert all_bindings(client) == []
        body = {"issuer": "https://token.actions.githubusercontent.com", "origin": "org_admin"}
        body |= {"sub_pattern": "repo:a", "repository_id": "7"}
        assert client.post(bindings_path(), json=body).status_code == 201
    server.stop()

    home.ask("restore", "--force", str(target))
    assert home.listed("bindings", "list", "--org", "acme") == []


def stopped_midway(home: Home, *words: str, folder: Path) -> Process:
    """A command that is suspended with some segments copied into an unfinished `folder`."""
    segments = f".{folder.name}.*.part/audit/*/*/*.parquet"
    process = home.stop_midway(*words, is_midway=lambda: any(folder.parent.glob(segments)))
    assert not folder.exists()
    return process


def test_a_kill_midway_leaves_no_backup_of_that_name(long_home):
    target = long_home.folder / "backup"
    process = stopped_midway(long_home, "backup", str(target), folder=target)
    process.kill()
    process.communicate()

    assert not target.exists()
    (part,) = left_over(long_home.folder)
    other = another(long_home)
    assert "is no backup" in other.order("restore", str(long_home.folder / part)).refusal
    other.end()
    long_home.ask("backup", str(target))
    assert target.exists()


def test_ctrl_c_midway_leaves_nothing(long_home):
    target = long_home.folder / "backup"
    process = stopped_midway(long_home, "backup", str(target), folder=target)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130
    assert b"Traceback" not in err
    assert not target.exists()
    assert left_over(long_home.folder) == []


@only_full
@pytest.mark.sqlite_only(reason="restores over what is there; see test_postgresql.py")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_restore_that_ends_midway_leaves_the_data_dir_as_it_was(long_home, end):
    target = long_home.folder / "backup"
    long_home.ask("backup", "--link", str(target))
    other = another(long_home)
    process = stopped_midway(other, "restore", str(target), folder=other.data_dir)
    process.send_signal(end)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=DEADLINE_S)

    assert not other.data_dir.exists()
    assert len(left_over(other.folder)) == (1 if end == signal.SIGKILL else 0)
    other.ask("restore", str(target))
    assert other.ask("audit", "check")["findings"] == []
    other.end()


@only_full
@pytest.mark.parametrize("kib", [64, *(pytest.param(kib, marks=only_full) for kib in (1, 1024))])
def test_room_that_ends_midway_is_one_line_and_leaves_nothing(long_home, kib):
    """A limit on the size of a file ends writing as a full disk does, for any user.

    Below the size of the database, and of the first page of it.
    """
    target = long_home.folder / "backup"
    done = run_module(
        CLI,
        "backup",
        str(target),
        is_fresh=True,
        # Python would not mind half a file of bytecode: not now, but at the next start.
        env=long_home.environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
        text=True,
        timeout=DEADLINE_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, kib * 1024)),
    )

    assert done.returncode in {REFUSED, UNAVAILABLE}
    assert done.stderr.startswith("countersign: ")
    assert done.stderr.count("\n") == 1
    assert not target.exists()
    assert left_over(long_home.folder) == []


def test_a_terminal_shows_how_far_it_is(home):
    shown = home.watch("backup", str(home.folder / "backup"))

    assert b"Backing up" in shown
    assert b" kB" in shown
