"""A command works where it says, and says where it worked."""

import re
from pathlib import Path

import click
import pytest

from service.cli.commands import Command, CommandPlace
from service.cli.logins import Login, Logins, changed_logins, credential_of
from service.core.settings import REPOSITORY
from tests.processes.command_line import Ran, invoke
from tests.processes.command_tree import every_command

SERVER = "https://audit.example"
REFUSED, WRONG_USAGE = 1, 2
COMMANDS = {
    words: command
    for words, command in every_command().items()
    if not isinstance(command, click.Group)
}
LOCAL = [words for words, command in COMMANDS.items() if command.place is CommandPlace.DATA_DIR]


def complete(words: tuple[str, ...]) -> list[str]:
    """The command with a value for each argument and option that it requires."""
    given = list(words)
    for parameter in COMMANDS[words].params:
        if parameter.required:
            given += parameter.opts[:1] if isinstance(parameter, click.Option) else []
            given.append(value_of(parameter.type))
    return given


def value_of(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.Path) and kind.exists:
        return str(REPOSITORY / "pyproject.toml")
    return "x"


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The variables of a machine that has no data dir yet."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def signed_in(machine, monkeypatch) -> dict[str, str]:
    """The same with a stored login."""
    monkeypatch.setenv("XDG_CONFIG_HOME", machine["XDG_CONFIG_HOME"])
    with changed_logins() as held:
        held[0] = Logins().with_login(Login(SERVER, credential_of("secret"), "acme", "ada"))
    return machine


def check_refused(ran: Ran, words: tuple[str, ...], why: str) -> None:
    assert ran.code == WRONG_USAGE, words
    assert ran.refusal.startswith(f"`{' '.join(words)}` works on a data dir only, and {why} names")
    assert SERVER in ran.refusal
    assert "add --local to work on the data dir /" in ran.refusal


def test_every_command_says_where_it_works_and_whether_it_changes_anything():
    assert all(isinstance(command, Command) for command in COMMANDS.values())
    local = {words for words, command in COMMANDS.items() if command.place is CommandPlace.LOCAL}
    verifying = {("attest", "verify"), ("audit", "verify-export"), ("evidence", "verify")}
    assert local == verifying | {("demo",), ("init",), ("serve",)}
    assert {" ".join(words) for words in LOCAL} == documented_as_local()
    changing = {words[-1] for words in LOCAL if COMMANDS[words].changes}
    assert {"import", "backup", "restore", "take-over", "rotate"} <= changing


def documented_as_local() -> set[str]:
    """The commands in the table of docs/command-line.md, each with its group."""
    page = (REPOSITORY / "docs" / "command-line.md").read_text()
    (table,) = re.findall(r"^\| on a data dir only \|\n\| --- \|\n((?:\|.*\n)+)", page, re.M)
    found = set()
    for row in table.splitlines():
        first, *others = re.findall(r"`([a-z -]+)`", row)
        group, _, _ = first.rpartition(" ")
        found |= {first, *(f"{group} {name}".strip() for name in others)}
    return found


@pytest.mark.parametrize("words", LOCAL, ids=" ".join)
def test_with_a_server_set_a_command_on_a_data_dir_wants_local(signed_in, words):
    """It could be meant for the server, and would silently change what is here."""
    set_here = signed_in | {"COUNTERSIGN_SERVER": SERVER}
    check_refused(invoke(complete(words), set_here), words, "COUNTERSIGN_SERVER")
    check_refused(invoke([*complete(words), "--json"], signed_in), words, "the stored login")


def test_local_names_the_data_dir_and_so_does_its_variable(signed_in, tmp_path):
    listing = ["org", "list"]
    empty = {"COUNTERSIGN_DATA_DIR": str(tmp_path / "data")}
    for words, variables in (
        ([*listing, "--local"], signed_in | empty | {"COUNTERSIGN_SERVER": SERVER}),
        (listing, signed_in | empty),
    ):
        ran = invoke(words, variables)
        assert ran.code == REFUSED
        assert ran.refusal.startswith(f"no data in {tmp_path / 'data'}: run `countersign init`")
