"""The environment of a command that installs through the proxy, and its file for npm."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from service.packages.proxy.clients import ProxyAddress, all_variables, npmrc

USERCONFIG: Final = "NPM_CONFIG_USERCONFIG"
HIDDEN: Final = "***"
BYPASSES: Final = ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
"""Variables that make clients fetch packages from elsewhere, past the proxy."""

_NPM_BYTES_MAX: Final = 1 << 20
_REGISTRY: Final = re.compile(r"\s*registry\s*=", re.ASCII)
_WITHOUT_YARN: Final = frozenset({"npm", "npx", "pnpm", "pnpx"})


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


def shown_variables(address: ProxyAddress) -> dict[str, str]:
    """The variables that are set, with the token hidden."""
    return all_variables(address, HIDDEN) | {USERCONFIG: "(a temporary file)"}


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
