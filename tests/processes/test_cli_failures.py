"""What operators run into: addresses, databases and locks, each one line and an exit code."""

import fcntl
import socket

import pytest

from service.access.callers import cli_caller
from service.app.composition import Services
from service.audit.sealer import Sealer
from service.cli.audit_maintenance import audit_seal
from service.cli.commands import CommandContext
from service.core.settings import REPOSITORY
from service.store.lease import LeaseLost, LeaseTaken
from tests.other_programs import execute
from tests.processes.homes import PLATFORM, Home

pytestmark = pytest.mark.slow

REFUSED, UNAVAILABLE = 1, 3
URL = "COUNTERSIGN_DATABASE_URL: "
NO_TEXT = "arguments must be text in UTF-8"


def set_revision(home: Home, revision: str) -> None:
    """Make the database look as if another version had written it."""
    execute(home.data_dir, "UPDATE alembic_version SET version_num = ?", [revision])


@pytest.mark.parametrize("command", ["demo", "serve"])
def test_an_address_that_is_taken_is_refused_before_any_work(empty_home, command):
    """What says "ready" must be true."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = empty_home.order(command, port=str(port))

    assert ran.code == REFUSED
    assert ran.refusal == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert not empty_home.data_dir.exists()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.7", "a" * 70])
@pytest.mark.parametrize("command", ["demo", "serve"])
def test_a_host_that_is_not_ours_is_one_line(quiet_home, command, host):
    ran = quiet_home.order(command, host=host)

    assert ran.code == REFUSED
    assert ran.refusal.startswith(f"cannot listen on {host}:")


@pytest.mark.parametrize("words", ["demo", "demo --no-serve", "init", "serve"])
def test_a_data_dir_that_cannot_be_made_is_one_line(empty_home, words):
    empty_home.data_dir.write_text("a file is in the way")

    ran = empty_home.order(*words.split())

    assert ran.code == REFUSED
    assert str(empty_home.data_dir) in ran.refusal


@pytest.mark.parametrize("command", ["org list", "init", "serve", "demo --no-serve"])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("bogus", "Could not parse"),
        ("sqlite:///file.db", "The asyncio extension requires an async driver"),
        ("sqlite+aiosqlite://", "must name a file"),
        ("mysql+aiomysql://ada:secret@db/countersign", "mysql is none of sqlite, postgresql"),
        ("nosuch://db/countersign", "nosuch is none of sqlite, postgresql"),
        ("postgresql+asyncpg://ada:se@cret:secret@db/x", "the port is not a number"),
        ("postgresql+asyncpg://ada:secret@db/x?sslmode=on", "unknown option sslmode after `?`"),
    ],
)
def test_a_database_url_that_cannot_be_used_is_one_line_that_names_it(
    quiet_home, command, url, reason
):
    ran = quiet_home.order(*command.split(), database_url=url)

    assert ran.code == REFUSED
    assert ran.refusal.startswith(URL + reason)
    assert "secret" not in ran.refusal


def test_a_faulty_issuers_file_is_one_line_that_names_the_line(home):
    """Trust is not started on half of what the operator meant."""
    file = home.folder / "issuers.toml"
    shipped = (REPOSITORY / "data" / "issuers.toml").read_text()
    file.write_text(shipped.replace('algorithms = ["RS256"]', 'algorithms = ["none"]', 1))
    line = file.read_text().split("\n").index('algorithms = ["none"]') + 1

    listed = home.order("org", "list", issuers_file=str(file))
    served = home.run("serve", issuers_file=str(file))

    for ran in (listed, served):
        assert ran.code == REFUSED
        assert ran.refusal.startswith(
            f"COUNTERSIGN_ISSUERS_FILE {file}, line {line}: github.algorithms: Invalid enum value"
        )


@pytest.mark.parametrize("words", ["org list", "audit seal", "init", "serve", "demo --no-serve"])
def test_a_database_of_a_newer_version_is_left_alone(home, words):
    """What this version does not know it must not read, and not write."""
    set_revision(home, "9999")

    ran = home.order(*words.split())

    assert ran.code == REFUSED
    assert ran.refusal == (
        "the database was written by a newer version of Countersign: update this one"
    )


def test_a_database_of_an_older_version_is_refused_until_init_has_run(home):
    """Commands do not migrate in passing: a server of the older version may still be at work."""
    url = f"sqlite+aiosqlite:///{home.folder / 'empty.db'}"

    refused = home.order("org", "list", database_url=url)

    assert refused.code == REFUSED
    assert refused.refusal == ("the database is not of this version yet: run `countersign init`")
    home.ask("init", database_url=url)
    assert home.listed("org", "list", database_url=url) == []


def test_sealing_while_another_process_seals_is_exit_code_3(home):
    """To say that 0 rows were sealed would be a lie: they are there, and trying again may help."""
    with (home.data_dir / "seal.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = home.order("audit", "seal", "--wait", "0")

    assert (ran.code, ran.refusal) == (
        UNAVAILABLE,
        "another process is changing segments; try again",
    )
    assert home.ask("audit", "seal")["rows"] == 1


def test_a_lease_lost_while_sealing_is_said_like_one_not_had(home, monkeypatch):
    async def lose(*_: object, **__: object) -> None:
        raise LeaseLost

    async def seal(services: Services) -> None:
        await audit_seal(CommandContext(services, cli_caller(PLATFORM)), wait_s=60)

    monkeypatch.setattr(Sealer, "seal_due", lose)

    with pytest.raises(LeaseTaken):
        home.change(seal)


def test_ended_sessions_are_recorded_with_their_number(home):
    ada = ("--org", "acme", "--member", "ada@acme.example")
    home.ask("member", "add", *ada[:2], ada[3], "--idp", "github", "--role", "owner")
    home.ask("session", "issue", *ada, "--cookie")

    assert home.ask("session", "revoke", *ada)["sessions"] == 1

    (row,) = home.ask("audit", "query", "--org", "acme", "--event", "session_revoked")["entries"]
    assert row["payload"]["sessions"] == 1
    assert row["subject"] == row["payload"]["member_id"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("member", "add", "--org", "acme", "\udcff@acme.example", "--idp", "github"),
        ("member", "list", "--org", "\udcff"),
        ("bindings", "revoke", "--repository-id", "\udcff"),
        ("audit", "query", "--org", "acme", "--package", "\udcff"),
        ("backup", "\udcff"),
        ("restore", "\udcff"),
    ],
)
def test_an_argument_that_is_no_text_is_one_line(home, arguments):
    """A shell passes any bytes on; those that are not UTF-8 name nothing that could be stored."""
    ran = home.order(*arguments)

    assert ran.code == REFUSED
    assert ran.refusal == NO_TEXT


def test_a_byte_from_a_shell_that_is_no_text_is_one_line(home):
    ran = home.run("member", "list", "--org", "\udcff")

    assert (ran.code, ran.refusal) == (REFUSED, NO_TEXT)


def test_a_file_nested_beyond_reading_is_one_line(home):
    file = home.folder / "deep.toml"
    file.write_text("x = " + "[" * 3000 + "]" * 3000)

    ran = home.order("apply", str(file))

    assert ran.code == REFUSED
    assert ran.refusal.startswith("deep.toml: ")
