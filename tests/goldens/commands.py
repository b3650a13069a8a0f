"""How each command ends, and what it writes, on a data dir and on a server."""

import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from service.cli.commands import Command
from tests.goldens.command_cases import (
    ARGUMENTS,
    BY_NAME,
    FIRST,
    LEFT_OUT,
    LOGGED_IN,
    paths_in,
    words_of,
    write_files,
)
from tests.goldens.fixed import CLOCK, MINUTES, START
from tests.goldens.shown import shown_command
from tests.goldens.world import ADMIN_TOKEN, Installation
from tests.interpreters import Process, start_module
from tests.polling import eventually
from tests.processes.command_line import Ran, invoke
from tests.processes.command_tree import every_command

_MINUTE_S: Final = 60
_NAME: Final = re.compile(r"\{(\w+_id)\}")
_GIVEN: Final = f"{ADMIN_TOKEN}\n".encode()
_ON_SERVERS: Final = frozenset({"EITHER", "SERVER"})


def leaves() -> dict[str, Command]:
    """Every command that is no group, by its words."""
    return {
        " ".join(words): command
        for words, command in every_command().items()
        if isinstance(command, Command)
    }


def cases_of(name: str, command: Command) -> list[str]:
    """The arguments of the command's samples: the first ones should succeed, others may fail."""
    cases = list(ARGUMENTS.get(name) or [_generic(command)])
    first = cases[0]
    if "--org acme" in first:
        cases.append(first.replace("--org acme", "--org no-such-org"))
    elif first.startswith("acme"):
        cases.append(first.replace("acme", "no-such-org", 1))
    if _NAME.search(first):
        cases.append(_NAME.sub("nothing", first))
    if any(parameter.required for parameter in command.params):
        cases.append("")
    return list(dict.fromkeys(cases))


def _generic(command: Command) -> str:
    """The command's required parameters, and its organisation, by their names."""
    words = []
    for parameter in command.params:
        if not parameter.required and parameter.name != "slug":
            continue
        value = BY_NAME.get(parameter.name or "", f"{{{parameter.name}}}")
        is_option = isinstance(parameter, click.Option)
        words.append(f"{parameter.opts[-1]} {value}" if is_option else value)
    return " ".join(words)


@dataclass
class Bench:
    """Copies of an installation for commands, and a server of one while it is needed."""

    original: Installation
    folder: Path
    ports: list[int] = field(default_factory=list)
    _copy: Installation | None = None
    _server: Process | None = None

    def close(self) -> None:
        self.renew()

    def prepare(self, name: str) -> None:
        """Do in the copy in use, once, what has to be done before the command `name`."""
        if name in FIRST and self._copy is None:
            self.copy.run(*words_of(FIRST[name], self.values))

    def renew(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        self._copy = self._server = None

    @property
    def copy(self) -> Installation:
        if self._copy is None:
            self._copy = self.original.copied(self.folder)
            write_files(self.folder / "files")
        return self._copy

    @property
    def values(self) -> dict[str, str]:
        """The values of names in arguments."""
        paths = paths_in(self.copy.folder / "files")
        return {**self.copy.ids, **paths, "server": self.url}

    @property
    def url(self) -> str:
        if not self.ports:
            self.ports.append(_free_port())
        return f"http://127.0.0.1:{self.ports[0]}"

    def serve(self) -> None:
        if self._server is not None:
            return
        minutes = int((CLOCK.now - START).total_seconds()) // _MINUTE_S
        environment = self.copy.environment | {MINUTES: str(minutes)}
        _ = self.url
        self._server = start_module(
            "tests.goldens.server",
            str(self.ports[0]),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._is_listening, "the server")

    def _is_listening(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[0]), 1):
            return True
        return False

    def normalised(self, text: str) -> str:
        """`text` without what differs from run to run."""
        return self.copy.normalised(text.replace(self.url, "{server}"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def shown_commands(bench: Bench, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The name of the file and the text of all samples of each command that is wanted."""
    for name, command in leaves().items():
        if name in LEFT_OUT:
            continue
        file = name.replace(" ", "-")
        if command.place.name != "SERVER" and is_wanted(file):
            bench.renew()
            yield file, _shown_locally(bench, name, command)
        if command.place.name in _ON_SERVERS and is_wanted(f"{file}.server"):
            bench.renew()
            yield f"{file}.server", _shown_remotely(bench, name, command)


def _shown_locally(bench: Bench, name: str, command: Command) -> str:
    """Each case for scripts and for people, and the first one at other places."""
    parts = []
    for arguments in cases_of(name, command):
        for options in (("--json",), ()):
            words = _words(bench, name, arguments, options)
            parts.append(_sample(bench, command, words, bench.copy.run(*words)))
    if command.place.name == "DATA_DIR":
        words = _words(bench, name, cases_of(name, command)[0], ("--json",))
        nowhere = {"COUNTERSIGN_DATA_DIR": str(bench.copy.folder / "none")}
        for variables in (nowhere, {"COUNTERSIGN_SERVER": "https://audit.example"}):
            ran = bench.copy.run(*words, **variables)
            title = f"with another {next(iter(variables))}:\n"
            parts.append(title + _sample(bench, command, words, ran))
    return "\n".join(parts)


def _shown_remotely(bench: Bench, name: str, command: Command) -> str:
    """Each case for scripts, and the first one with credentials that are not good for it."""
    parts = []
    cases = cases_of(name, command)
    credentials = _credentials(bench.original, name)
    for arguments in cases:
        for title, variables in (
            credentials.items() if arguments == cases[0] else [next(iter(credentials.items()))]
        ):
            words = _words(bench, name, arguments, ("--json",))
            bench.serve()
            if name in LOGGED_IN:
                invoke(("login", bench.url, "--with-token"), bench.copy.person, _GIVEN)
            where = {"COUNTERSIGN_SERVER": bench.url} if "COUNTERSIGN_TOKEN" in variables else {}
            ran = invoke(words, bench.copy.person | where | variables, _GIVEN)
            parts.append(f"{title}:\n" + _sample(bench, command, words, ran))
    return "\n".join(parts)


def _credentials(original: Installation, name: str) -> dict[str, dict[str, str]]:
    """The variables of a person at a server, the first ones with all rights."""
    if name.startswith("ci "):
        return {"key": {"COUNTERSIGN_API_KEY": original.ids["secret"]}}
    if name in LOGGED_IN or name.endswith("login"):
        return {"token on standard input": {}}
    tokens = {"owner": original.cookies["owner"], "auditor": original.cookies["auditor"]}
    tokens |= {"admin token": ADMIN_TOKEN, "wrong token": "nothing"}
    return {title: {"COUNTERSIGN_TOKEN": token} for title, token in tokens.items()}


def _words(bench: Bench, name: str, arguments: str, options: tuple[str, ...]) -> tuple[str, ...]:
    bench.prepare(name)
    return (*name.split(), *_with(words_of(arguments, bench.values), options))


def _sample(bench: Bench, command: Command, words: tuple[str, ...], ran: Ran) -> str:
    """A command and how it ended; after a change the next one gets another copy."""
    text = bench.normalised(shown_command(words, ran) + _written(bench.copy))
    if command.changes or (bench.copy.folder / "files" / "out").exists():
        bench.renew()
    return text


def _with(words: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """`words` with `more` options, which are no part of a command behind `--`."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at] + more + words[at:]


def _written(copy: Installation) -> str:
    """What a command wrote to the place that is for it."""
    out = copy.folder / "files" / "out"
    if not out.exists():
        return ""
    if out.is_dir():
        names = sorted(str(file.relative_to(out)) for file in out.rglob("*") if file.is_file())
        return "folder {out} with\n" + "\n".join(names) + "\n"
    try:
        return "file {out}:\n" + out.read_bytes().decode()
    except UnicodeDecodeError:
        return "file {out} that is not text\n"
