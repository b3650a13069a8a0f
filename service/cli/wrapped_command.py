"""Runs a command with every package manager pointed at the proxy, for as long as it runs."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from configparser import Error as ConfigError
from configparser import RawConfigParser
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

import click

from service.packages.clients import ProxyAddress
from service.packages.ecosystems import all_variables
from service.packages.npm.clients import npmrc

USERCONFIG: Final = "NPM_CONFIG_USERCONFIG"
HIDDEN: Final = "***"
BYPASSES: Final = ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
"""Variables that make clients fetch packages from elsewhere, past the proxy."""

_PIP_BYPASSES: Final = frozenset({"extra-index-url", "find-links"})
_SCOPED: Final = re.compile(r"\s*(@[^:\s]+:registry)\s*=", re.ASCII)
_NPM_BYTES_MAX: Final = 1 << 20
_REGISTRY: Final = re.compile(r"\s*registry\s*=", re.ASCII)
_WITHOUT_YARN: Final = frozenset({"npm", "npx", "pnpm", "pnpx"})


_TOKEN: Final = re.compile(r"cs[im]_[\w-]{16,200}", re.ASCII)


def token_of(answer: Mapping[str, object]) -> str:
    """The token that a server issued. Raises ValueError, KeyError if it could be none.

    It becomes a part of addresses, variables and a line of npm's file: it must be nothing else.
    """
    token = answer["token"]
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError("token")
    return token


def run_wrapped(
    environment: Mapping[str, str],
    address: ProxyAddress,
    token: str,
    command: Sequence[str],
    *,
    secrets: Sequence[str],
) -> int:
    """The exit code of `command`, run in `environment` with the token, and without `secrets`."""
    for name in bypasses(environment):
        click.echo(
            f"countersign: {name} is set: packages from there are neither checked nor recorded",
            err=True,
        )
    with install_environment(
        environment, address, token, command=command, secrets=secrets
    ) as own_environment:
        try:
            return Child().run(command, own_environment)
        except FileNotFoundError:
            click.echo(f"countersign: no command {command[0]}", err=True)
            return NOT_FOUND
        except OSError as error:
            click.echo(f"countersign: cannot run {command[0]}: {error.strerror}", err=True)
            return NOT_EXECUTABLE


@contextmanager
def install_environment(
    environment: Mapping[str, str],
    address: ProxyAddress,
    token: str,
    *,
    command: Sequence[str],
    secrets: Sequence[str] = (),
) -> Iterator[dict[str, str]]:
    """`environment` with every client pointed at the proxy, while the block runs.

    The variables named in `secrets` are left out: install scripts must not get secrets that outlive
    the token. npm's file is readable only by this user, and is removed at the end of the block.
    """
    ours = all_variables(address, token)
    with TemporaryDirectory(prefix="countersign-") as folder:
        file = Path(folder) / "npmrc"
        ours[USERCONFIG] = str(file)
        is_for_yarn_1 = Path(command[0]).name not in _WITHOUT_YARN
        content = _without_registry(_former(environment)) + npmrc(
            address, token, is_for_yarn_1=is_for_yarn_1
        )
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as opened:
            opened.write(content)
        yield merged(environment, ours, secrets)


def bypasses(environment: Mapping[str, str]) -> Iterator[str]:
    """The settings of the user that make clients fetch packages from elsewhere, past the proxy.

    In the environment, in pip's own files, and scopes with a registry of their own in npm's.
    """
    yield from (name for name in BYPASSES if environment.get(name))
    home = Path(environment.get("HOME") or "/nonexistent")
    config = environment.get("XDG_CONFIG_HOME") or str(home / ".config")
    named = environment.get("PIP_CONFIG_FILE")
    folders = (environment.get("VIRTUAL_ENV") or "/nonexistent", f"{config}/pip", home / ".pip")
    files = [Path(folder) / "pip.conf" for folder in folders]
    for file in [*files, *([Path(named)] if named else [])]:
        settings = RawConfigParser(strict=False)
        with contextlib.suppress(OSError, ConfigError, UnicodeDecodeError):
            settings.read_string(file.read_text())
        for section in settings.sections():
            found = _PIP_BYPASSES & {*settings.options(section)}
            yield from (f"{name} in {file}" for name in sorted(found))
    lines = map(_SCOPED.match, _former(environment).splitlines())
    yield from (f"{line[1]} in npm's own file" for line in lines if line)


def merged(
    environment: Mapping[str, str], ours: Mapping[str, str], secrets: Sequence[str]
) -> dict[str, str]:
    """`environment` with `ours` in place of the same names, in any case: npm reads both."""
    names = {name.lower() for name in ours if "npm_config_" in name.lower()}
    kept = {
        name: value
        for name, value in environment.items()
        if name not in secrets and name.lower() not in names
    }
    return kept | dict(ours)


def display_variables(address: ProxyAddress) -> dict[str, str]:
    """The variables that are set, with the token hidden."""
    return all_variables(address, HIDDEN) | {USERCONFIG: "(a temporary file)"}


def assignments(address: ProxyAddress) -> list[str]:
    """The same as lines to show."""
    return [f"{name}={value}" for name, value in display_variables(address).items()]


def _former(environment: Mapping[str, str]) -> str:
    """The user's own file, which ours replaces; empty if there is none."""
    named = environment.get(USERCONFIG) or environment.get(USERCONFIG.lower())
    path = Path(named) if named else Path(environment.get("HOME") or "/nonexistent") / ".npmrc"
    try:
        with path.open("rb") as file:
            raw = file.read(_NPM_BYTES_MAX)
    except OSError:
        return ""
    return raw.decode("utf-8", "surrogateescape")


def _without_registry(content: str) -> str:
    lines = [line for line in content.splitlines() if not _REGISTRY.match(line)]
    return "".join(f"{line}\n" for line in lines)


FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""The exit codes of shells."""

_BY_SIGNAL: Final = 128


class Child:
    """The command to run. Signals that arrive before it has started are sent to it then."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run `command` to its end; its exit code, or 128 plus the number of the fatal signal.

        Raises OSError if it cannot be run.
        """
        with (
            self._forwarding(),
            # The user's own command, verbatim; no shell interprets it.
            subprocess.Popen(command, env=dict(environment)) as process,  # noqa: S603
        ):
            self._process = process
            # After `_process` is set: from then on signals are sent directly, and none is lost.
            for number in self._early:
                process.send_signal(number)
            code = process.wait()
        return code if code >= 0 else _BY_SIGNAL - code

    @contextlib.contextmanager
    def _forwarding(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread receives signals
            return
        before = {number: signal.getsignal(number) for number in FORWARDED}
        # What the caller ignores, such as Ctrl-C behind `nohup`, the command ignores, too.
        heard = [number for number in FORWARDED if before[number] != signal.SIG_IGN]
        for number in heard:
            signal.signal(number, self._forward)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, before[number])

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number in {signal.SIGINT, signal.SIGQUIT} and _is_in_foreground():
            return  # a terminal sends them to both of us
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp() if sys.__stdin__ else False
    except (OSError, ValueError):
        return False
