"""Real package managers, each in an empty folder and with empty caches of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.proxies.packages import parts_of
from benchmarks.proxies.peers import Proxy
from service.core.settings import REPOSITORY

FOLDER: Final = Path(os.environ.get("CLIENTS") or REPOSITORY / ".clients")
"""Where setup_proxies.sh installs them."""

DEADLINE_S: Final = 300.0
_PYTHON: Final = FOLDER / "python" / "bin"


@dataclass(frozen=True)
class Installer:
    """A package manager: the URL of the registry it asks, and the command that installs a name."""

    name: str
    url: Callable[[Proxy], str | None]
    command: Callable[[Proxy, Path, str], list[str | Path]]
    installed: str
    """What is there of a package afterwards, relative to the folder."""


def _with_password(url: str | None, proxy: Proxy) -> str:
    scheme, _, rest = str(url).partition("://")
    return f"{scheme}://user:{proxy.password}@{rest}" if proxy.password else str(url)


def _pip(proxy: Proxy, _: Path, name: str) -> list[str | Path]:
    index = _with_password(proxy.pypi, proxy)
    options = ["--no-cache-dir", "--no-compile", "--target", "site", "--index-url", index]
    return [_PYTHON / "pip", "install", "--quiet", *options, name]


def _uv(proxy: Proxy, _: Path, name: str) -> list[str | Path]:
    index = _with_password(proxy.pypi, proxy)
    options = ["--no-cache", "--target", "site", "--python", sys.executable, "--index-url", index]
    return [_PYTHON / "uv", "pip", "install", "--quiet", *options, name]


def _npm(proxy: Proxy, home: Path, name: str) -> list[str | Path]:
    address = str(proxy.npm)
    token = f"{address.partition(':')[2]}:_authToken={proxy.password}\n" if proxy.password else ""
    (home / ".npmrc").write_text(f"registry={address}\n{token}")
    options = ["--no-audit", "--no-fund", "--silent", "--ignore-scripts"]
    return [shutil.which("npm") or "npm", "install", *options, name]


INSTALLERS: Final = (
    Installer("uv", lambda proxy: proxy.pypi, _uv, "site/{}.py"),
    Installer("pip", lambda proxy: proxy.pypi, _pip, "site/{}.py"),
    Installer("npm", lambda proxy: proxy.npm, _npm, "node_modules/{}/package.json"),
)


def available() -> list[Installer]:
    """Those that are on this machine."""
    there = {"uv": (_PYTHON / "uv").exists(), "pip": (_PYTHON / "pip").exists()}
    return [each for each in INSTALLERS if there.get(each.name, shutil.which("npm") is not None)]


def install_s(installer: Installer, proxy: Proxy, number: str) -> float:
    """The seconds that it takes to install set `number`; all of it must then be there."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NPM_CONFIG_GLOBALCONFIG": str(home / "no-npmrc"),
        }
        command = installer.command(proxy, home, f"all-{number}")
        began_at = time.perf_counter()
        subprocess.run(command, cwd=folder, env=environment, timeout=DEADLINE_S, check=True)
        took_s = time.perf_counter() - began_at
        is_python = installer.url(proxy) == proxy.pypi
        for part in parts_of(number):
            name = part.replace("-", "_") if is_python else part
            assert (home / installer.installed.format(name)).exists(), part
    return took_s
