"""How a command ends: one list of exit codes, and no traceback whatever happens to its output."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from service.cli.root import root as main
from service.core.exit_codes import ExitCode
from service.core.settings import REPOSITORY
from tests.budgets import sample
from tests.interpreters import start_module
from tests.processes.command_tree import every_command
from tests.processes.desks import Desk
from tests.processes.homes import CLI, DEADLINE_S, Home

slow = pytest.mark.slow
COLUMNS = 80
CODE = "from service.cli.main import main; main(prog_name='countersign')"


def test_the_documented_codes_are_those_of_the_commands():
    page = (REPOSITORY / "docs" / "command-line.md").read_text()
    (table,) = re.findall(r"^\| code \| meaning \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page, re.M)
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", table, re.M)
    shown = " ".join(CliRunner().invoke(main, ["--help"]).output.split())

    assert rows == [(str(int(code)), code.meaning) for code in ExitCode]
    for code in ExitCode:
        assert f"{int(code)} {code.meaning}" in shown


def test_codes_that_pages_and_help_name_are_those_of_the_list():
    """`--plan` once ended with 2, as a wrong usage does."""
    named = r"[Ee]xit code(?: of `?--plan`?)?(?: is| then)? (\d+)"
    texts = [path.read_text() for path in (REPOSITORY / "docs").rglob("*.md")]
    for command in every_command().values():
        texts.append(command.help or "")
        texts += [o.help or "" for o in command.params if isinstance(o, click.Option)]
    codes = {int(code) for text in texts for code in re.findall(named, text)}

    assert {1, 4, 5} <= codes <= {int(code) for code in ExitCode}


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_help_fits_a_terminal(words):
    shown = CliRunner().invoke(main, [*words, "--help"], env={"COLUMNS": str(COLUMNS)})

    assert max(map(len, shown.output.splitlines())) <= COLUMNS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--json", "No such option '--json'"),
        ("nothing --json", "No such command 'nothing'."),
        ("org add --json", "Missing argument 'SLUG'."),
        ("org list --json --nothing", "No such option '--nothing'."),
        ("session list --json", "Missing option '--member'"),
        ("policy check --json --org a conda b", "'conda' is not one of 'pypi', 'npm'"),
        ("whoami --json --local --server https://audit.example", "give either --server or"),
    ],
)
def test_a_wrong_usage_is_an_object_for_scripts(words, said):
    ran = CliRunner().invoke(main, words.split(), env={"COUNTERSIGN_DATA_DIR": "/nowhere"})

    assert ran.exit_code == ExitCode.USAGE
    assert ran.stdout == ""
    (error,) = json.loads(ran.stderr).values()
    assert list(json.loads(ran.stderr)) == ["error"]
    assert said in error
    assert "\n" not in error


def test_options_of_a_command_that_is_run_are_not_ours():
    ran = CliRunner().invoke(main, ["ci", "exec", "--nothing-of-ours", "--", "npm", "--json"])

    assert not ran.stderr.startswith("{")


def ended(home: Home, *words: str, stdout: int, **variables: str) -> tuple[int, str]:
    """Exit code and standard error of a command that writes to `stdout`."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *words],
        cwd=REPOSITORY,
        env=home.environment() | variables,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
    os.close(stdout)
    _, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err.decode()


@slow
@sample(1)
@pytest.mark.parametrize("words", [("org", "list"), ("org", "list", "--json")], ids=" ".join)
def test_output_to_a_full_disk_is_one_line(home, words):
    """The interpreter would try once more at its end, and end with a traceback."""
    code, err = ended(home, *words, stdout=os.open("/dev/full", os.O_WRONLY))

    assert code == ExitCode.UNAVAILABLE
    assert "No space left on device" in err
    assert err.count("\n") == 1


def closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


COMPLETING = {
    "_COUNTERSIGN_COMPLETE": "bash_complete",
    "COMP_WORDS": "countersign audit ",
    "COMP_CWORD": "2",
}


@slow
@sample(3)
@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (("org", "list"), {}),
        (("audit", "export", "--org", "acme", "--format", "csv", "-"), {}),
        (("--help",), {}),
        ((), {"_COUNTERSIGN_COMPLETE": "bash_source"}),
        ((), COMPLETING),
    ],
)
def test_a_reader_that_ends_first_is_no_error_of_ours(home, words, variables):
    """As in `… | head -1`, and in a shell that stops waiting for completions."""
    code, err = ended(home, *words, stdout=closed_pipe(), **variables)

    assert code == ExitCode.FAILED
    assert err == ""


@slow
@pytest.mark.sqlite_only(reason="its own lock")
def test_a_locked_database_is_busy_storage(home):
    """Trying again helps, so a script has to be able to tell."""
    with sqlite3.connect(home.database) as other:
        other.execute("BEGIN IMMEDIATE")
        ran = home.order("org", "add", "other", database_wait_s="0.2")

    assert ran.code == ExitCode.UNAVAILABLE
    assert ran.refusal.startswith("storage is busy: nothing was changed, try again")


@slow
def test_ctrl_c_while_a_server_is_waited_for_is_quiet(desk: Desk, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        variables = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": "cs_x"}
        process = start_module(
            CLI,
            *("audit", "list", "--org", "acme"),
            env=desk.environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"")


INTERRUPTED_AT = """
import sys
class Interrupt:
    def find_spec(self, name, *others):
        if name == sys.argv[-1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from service.cli.main import main
main(sys.argv[1:-1], prog_name="countersign")
"""


@slow
@sample(2)
@pytest.mark.parametrize("module", ["click", "service.cli.orgs", "sqlalchemy"])
def test_ctrl_c_while_modules_are_loaded_is_quiet(home, module):
    """Loading takes a second."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, "org", "list", module],
        cwd=REPOSITORY,
        env=home.environment(),
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, b"", b"")
