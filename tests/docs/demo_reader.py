"""A reader of the documentation who has started the demo, and pastes blocks into a shell."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from service.core.settings import REPOSITORY
from service.packages.ecosystems import CLIENTS
from tests.docs.forked_commands import forked_countersign
from tests.docs.programs import add_jq, add_program
from tests.docs.shell_blocks import Block
from tests.interpreters import run_module, start_module
from tests.issuers.fixtures import IssuerProcess
from tests.polling import HANG_S
from tests.processes.homes import CLI, Server, free_port
from tests.tiers import IS_FULL

CURLRC: Final = "fail-with-body\nshow-error\n"
"""The reader's ~/.curlrc: an answer with an error status is an error of the block."""

STAND_INS: Final = sorted({client.command.split()[0] for client in CLIENTS.values()})
"""Package managers of a CI job, which tests/clients/ runs with the same lines."""

KEY_SCOPES: Final = ("packages:install", "audit:r", "audit:export", "oidc:r")

_PRELUDE: Final = """\
set -Euo pipefail
newline=$'\\n'
trap 'echo "failed $? ${BASH_COMMAND%%"$newline"*}" >> "$RECORD"' ERR
"""


@dataclass(frozen=True, slots=True)
class Model:
    """The demo's data dir, to be copied, and an issuer of CI tokens that it trusts."""

    data_dir: Path
    issuer: IssuerProcess
    issuers_file: Path
    key: str = ""
    """An API key that installs and reads."""

    def environment(self, data_dir: Path) -> dict[str, str]:
        """The settings of a reader whose data dir this is."""
        return {
            "COUNTERSIGN_DATA_DIR": str(data_dir),
            "COUNTERSIGN_ISSUERS_FILE": str(self.issuers_file),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        }


def make_model(folder: Path, issuer: IssuerProcess) -> Model:
    """The demo a minute after its start: signed, with a binding for the jobs of `issuer`."""
    issuers_file = folder / "issuers.toml"
    known = (REPOSITORY / "data" / "issuers.toml").read_text()
    issuers_file.write_text(known + issuer.table("of_the_test"))
    model = Model(folder / "data", issuer, issuers_file)
    binding = ("--sub", "repo:acme/payments:ref:refs/heads/main", "--repository-id", "123456789")
    _countersign(model, "demo", "--no-serve")
    _countersign(model, "evidence", "sign")  # as the service does each minute
    _countersign(model, "bindings", "add", "--org", "acme", "--issuer", issuer.url, *binding)
    scopes = [word for scope in KEY_SCOPES for word in ("--scope", scope)]
    _countersign(model, "evidence", "sign")
    issued = _countersign(model, "apikey", "issue", "--org", "acme", "--name", "reader", *scopes)
    return replace(model, key=str(issued["secret"]))


def _countersign(model: Model, *arguments: str) -> dict[str, Any]:
    environment = model.environment(model.data_dir)
    ran = run_module(CLI, *arguments, "--json", env=environment, timeout=HANG_S)
    assert ran.returncode == 0, ran.stderr.decode()
    return dict(json.loads(ran.stdout))


class DemoReader:
    """A fresh home folder, a copy of the demo, and the server that `countersign demo` starts.

    The reader is in a checkout, as far as blocks can tell.
    """

    def __init__(self, folder: Path, model: Model) -> None:
        self.folder = folder / "desk"
        self.data_dir = folder / "data"
        self._home = folder / "home"
        self._model = model
        self._server: Server | None = None
        self._printed: dict[str, Any] = {}
        self.replaced: dict[str, str] = {}
        """Names of other servers in blocks, and those that the reader has."""
        self.variables: dict[str, str] = {}
        """What the reader's machine exports."""
        for path in (self.folder, self.programs, self.folder / ".venv" / "bin"):
            path.mkdir(parents=True)
        add_program(self.folder / ".venv" / "bin", "pip", "exit 0")
        untrusted = model.issuer.sign(sub="repo:acme/other:ref:refs/heads/main")
        (self.folder / "token.txt").write_text(untrusted)
        (self.folder / "key.txt").write_text(model.key)
        add_jq(self.programs)
        for name in STAND_INS:
            add_program(self.programs, name, "exit 0")
        add_program(self.programs, "circleci", f"echo {model.issuer.sign()}")

    def environment(self) -> dict[str, str]:
        """What the reader's shell has at its start."""
        environment = self._model.environment(self.data_dir)
        environment["PATH"] = f"{self._home}/bin:{environment['PATH']}"
        return environment | {"HOME": str(self._home), "LANG": "C.UTF-8"} | self.variables

    @property
    def programs(self) -> Path:
        """The folder of the programs that the reader's machine has, before those of Python."""
        return self._home / "bin"

    def read_json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def serve(self) -> Server:
        """The demo's server, started at the first call."""
        if self._server is None:
            self._copy_demo()
            port = free_port()
            environment = self._model.environment(self.data_dir)
            environment |= {"COUNTERSIGN_PORT": str(port)}
            printed, log = self._home / "demo.json", self._home / "demo.log"
            with printed.open("wb") as out, log.open("wb") as err:
                process = start_module(
                    CLI, "demo", "--json", env=environment, stdout=out, stderr=err
                )
            self._server = Server(process, port, log).wait_ready()
            self._printed = json.loads(printed.read_text())
        return self._server

    @property
    def admin_token(self) -> str:
        """As the demo printed it."""
        return str(self._printed["token"])

    @property
    def metrics_token(self) -> str:
        """As `init` stored it."""
        return (self.data_dir / "metrics_token").read_text().strip()

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()

    def _copy_demo(self) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)
        shutil.copytree(self._model.data_dir, self.data_dir)

    def substitutions(self) -> Mapping[str, str]:
        """What the reader replaces: addresses and credentials, by those that the demo printed."""
        url, token, key = self.serve().url, self.admin_token, self._model.key
        return {
            "http://127.0.0.1:8080": url,
            "https://audit.example.com": url,
            "https://audit.example": url,
            "METRICS_TOKEN=…": f"METRICS_TOKEN={self.metrics_token}",
            "CI_TOKEN=…": f"CI_TOKEN={self._model.issuer.sign()}",
            "TOKEN=cs_…": f"TOKEN={key}",
            "TOKEN=…": f"TOKEN={token}",
            "KEY=…": f"KEY={key}",
        }

    def typed(self, block: Block) -> str:
        """`block` as the reader types it."""
        text = block.text
        for before, after in self.replaced.items():
            text = text.replace(before, after)
        if any(sign in text for sign in ("127.0.0.1:8080", "//audit.example", "TOKEN=")):
            for before, after in self.substitutions().items():
                text = text.replace(before, after)
        return text

    def paste(self, blocks: list[Block]) -> list[str]:
        """Run `blocks` in one new shell; a complaint about each that ends in another way.

        On a new copy of the demo, unless its server runs.
        """
        if self._server is None:
            self._copy_demo()
        scripts = self._home / "scripts"
        shutil.rmtree(scripts, ignore_errors=True)
        scripts.mkdir()
        has_own = any("--fail " in block.text for block in blocks)
        (self._home / ".curlrc").write_text("" if has_own else CURLRC)
        record = scripts / "record"
        lines = [_PRELUDE]
        for number, block in enumerate(blocks):
            (scripts / f"{number}.sh").write_text(self.typed(block))
            lines.append(f'echo "block {number}" >> "$RECORD"')
            lines.append(f". {scripts}/{number}.sh > {scripts}/{number}.out 2>&1 < /dev/null")
        lines.append('echo "block end" >> "$RECORD"')
        (scripts / "all.sh").write_text("\n".join(lines) + "\n")
        environment = self.environment() | {"RECORD": str(record)}
        self._run(scripts / "all.sh", environment, HANG_S * len(blocks))
        return list(_complaints(blocks, scripts, record.read_text().splitlines()))

    def _run(self, script: Path, environment: Mapping[str, str], limit_s: float) -> None:
        """Bash with `script`; its process group is ended when it hangs."""
        with (script.parent / "shell.out").open("wb") as out:
            process = subprocess.Popen(
                ["bash", str(script)],
                env=environment,
                cwd=self.folder,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _complaints(blocks: list[Block], scripts: Path, record: list[str]) -> Iterator[str]:
    starts = [number for number, line in enumerate(record) if line.startswith("block ")]
    for number, block in enumerate(blocks):
        output = (scripts / f"{number}.out").read_text()
        if number + 1 >= len(starts):
            shell = (scripts / "shell.out").read_text()
            yield f"{block}\nends the shell, or does not end:\n{output}{shell}"
            return
        failures = record[starts[number] + 1 : starts[number + 1]]
        codes = {int(line.split()[1]) for line in failures if line.startswith("failed ")}
        refused = f"returned error: {block.status}" if block.status else ""
        if codes != {block.exit_code} - {0} or refused not in output:
            failed = "\n".join(line for line in failures if " . /" not in line)
            yield f"{block}\nshould exit with {block.exit_code}:\n{failed}\n{output}"


@contextmanager
def demo_reader(folder: Path, model: Model) -> Iterator[DemoReader]:
    """A reader in `folder`; the server ends with the context."""
    reader = DemoReader(folder, model)
    with ExitStack() as stack:
        stack.callback(reader.close)
        if not IS_FULL:
            stack.enter_context(forked_countersign(reader.programs))
        yield reader
