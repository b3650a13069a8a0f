"""The wheel of the client works where nothing is installed but the few packages that it names."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from service.core.settings import REPOSITORY
from tests.evidence.logs import Log
from tests.goldens.commands import leaves
from tests.processes.desks import Desk, by_browser
from tests.processes.homes import DEADLINE_S, Home, Server
from tests.processes.strange_servers import Strange, strange_server

pytestmark = pytest.mark.slow

MB_MAX = 20
REFUSED = 1
START = (
    "import sys; sys.path[:0] = sys.argv.pop(1).split(':');"
    " from service.cli.main import main; main(prog_name='countersign')"
)
HELPS = (
    "import sys; sys.path[:0] = sys.argv.pop(1).split(':');"
    " from service.cli.root import root;"
    " [root.main([*name.split(), '--help'], 'countersign', standalone_mode=False)"
    "  for name in sys.argv[1:]]"
)
"""Shows the help of each command that is named, in one process."""


class Client:
    """The client, unpacked beside links to what it needs."""

    def __init__(self, wheel: Path, folder: Path, extra: str = "") -> None:
        self.code, self.needed = folder / "client", folder / "needed"
        with ZipFile(wheel) as archive:
            archive.extractall(self.code)
        self.needed.mkdir()
        (self.info,) = self.code.glob("*.dist-info")
        message = metadata.Distribution.at(self.info)
        self.distributions = closure(message.requires or [], extra)
        for distribution in self.distributions:
            for top in {file.parts[0] for file in distribution.files or []} - {".."}:
                (self.needed / top).symlink_to(distribution.locate_file(top))

    def has(self, function: Callable[..., object] | None) -> bool:
        """Whether the module that declares this function is in it."""
        module = getattr(function, "__module__", "")
        return (self.code / f"{module.replace('.', '/')}.py").exists()

    def run(
        self, desk: Desk, *words: str, program: str = START, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """The command in an interpreter that finds no other package."""
        path = f"{self.code}:{self.needed}"
        command = [sys.executable, "-I", "-S", "-c", program, path, *words]
        env = desk.environment(**variables)
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S)


def closure(requirements: list[str], extra: str) -> list[metadata.Distribution]:
    """The distributions that are needed here with `extra`, and those that they need."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [*requirements]
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        is_for_us = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if is_for_us and name not in found:
            found[name] = metadata.distribution(name)
            waiting += found[name].requires or []
    return [*found.values()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, str(REPOSITORY / "requirements" / "client.py"), str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=DEADLINE_S)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(wheel, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def serving(there: Home) -> Iterator[Server]:
    return there.serve()


def listed(client: Client, desk: Desk, *group: str) -> list[str]:
    """The commands of a group, as its help lists them."""
    text = client.run(desk, *group, "--help").stdout.partition("Commands:\n")[2]
    return re.findall(r"^  ([\w-]+) ", text, re.MULTILINE)


def test_it_has_the_commands_of_laptops_and_jobs_and_none_of_a_data_dir(client: Client, desk: Desk):
    commands = {*listed(client, desk)}
    assert {"login", "logout", "whoami", "run", "ci", "machine", "bindings", "explain"} <= commands
    assert not {"serve", "init", "backup", "restore", "migrate", "lake", "demo"} & commands


def test_every_command_that_it_lists_can_be_called(client: Client, desk: Desk):
    commands = listed(client, desk)
    names = [name for name, command in leaves().items() if client.has(command.callback)]
    assert {name.split()[0] for name in names} <= {*commands}
    ran = client.run(desk, *names, program=HELPS)

    assert (ran.returncode, ran.stderr, len(names) > 30) == (0, "", True)
    shown = re.findall(r"^Usage: countersign ([\w -]+?) \[OPTIONS\]", ran.stdout, re.MULTILINE)
    assert shown == names


def test_it_is_small(client: Client):
    """Its wheel and all that is installed with it."""
    files = [
        Path(str(file.locate()))
        for each in client.distributions
        for file in each.files or []
        if not str(file).endswith(".pyc")
    ]
    files += [file for file in client.code.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files if file.exists()) < MB_MAX * 10**6
    assert (client.info / "licenses" / "LICENSE").exists()


def test_it_signs_in_and_installs(client: Client, desk: Desk, there: Home, serving: Server):
    member = ("ada@acme.example", "--idp", "github", "--role", "owner")
    there.ask("member", "add", "--org", "acme", *member)
    issue = ("session", "issue", "--org", "acme", "--member", member[0], "--cookie")
    cookie = there.ask(*issue, base_url=serving.url)["cookie"]
    # As by the whole command: the file of logins is the same.
    assert by_browser(desk, serving, cookie).code == 0

    who = client.run(desk, "whoami", "--json")
    assert json.loads(who.stdout)["member"]["email"] == member[0]
    script = "import os; print(os.environ['COREPACK_NPM_TOKEN'][:4])"
    ran = client.run(desk, "run", "--", sys.executable, "-c", script)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "csm_\n", "")
    rows = client.run(desk, "bindings", "list", "--json")
    assert (rows.returncode, json.loads(rows.stdout)["bindings"]) == (0, [])


def test_without_a_server_it_says_what_is_missing(client: Client, desk: Desk):
    ran = client.run(desk, "bindings", "list", "--local")
    assert ran.returncode == REFUSED
    assert ran.stderr.startswith("countersign: this is the client alone, which has no data dir")
    assert client.run(desk, "--version").stdout.startswith("countersign, version ")


@pytest.mark.parametrize("words", [("bindings", "list"), ("machine", "list"), ("policy", "show")])
def test_an_answer_of_another_form_is_one_line(client: Client, desk: Desk, words: tuple[str, ...]):
    """What sorts faults out is not there: the log's own classes are part of the service."""

    def answer(at: Strange) -> None:
        at.reply(200, b'{"org": "acme"}', x_request_id="req_1", content_type="application/json")

    with strange_server(answer) as (url, _):
        at = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": "cs_secret"}
        ran = client.run(desk, *words, "--org", "acme", **at)
    assert (ran.returncode, ran.stdout) == (REFUSED, "")
    assert "answers in a form that this program does not know" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_with_its_extra_it_verifies_evidence(
    client: Client, wheel: Path, desk: Desk, tmp_path: Path
):
    """On an auditor's machine, which has no service and no network."""
    log = Log(3)
    (tmp_path / "rows.zip").write_bytes(log.bundle(range(3)))
    words = ("evidence", "verify", str(tmp_path / "rows.zip"), "--key", str(log.key))

    without = client.run(desk, *words)
    assert (without.returncode, without.stdout) == (REFUSED, "")
    assert "install `countersign-client[evidence]`" in without.stderr
    ran = Client(wheel, tmp_path, "evidence").run(desk, *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "3 rows (index 0 to 2) are, byte for byte, in the log" in ran.stdout
