"""The version that runs: as installed, and as checked out if that has changed since."""

from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from service.core.settings import REPOSITORY

DISTRIBUTION: Final = "countersign-service"
CLIENT_DISTRIBUTION: Final = "countersign-client"
"""The commands that work on a server, alone: see requirements/client.py."""

UNKNOWN: Final = "0.0+unknown"
"""Of a tree that is not installed, or that was installed with neither git's data nor a version."""
FALLBACK: Final = "0.0"
"""What setup.py gives such a tree; every other version names a commit, or is given."""


@cache
def service_version() -> str:
    """The version of this service (PEP 440), as of the first call in the process."""
    installed = UNKNOWN
    for distribution in (CLIENT_DISTRIBUTION, DISTRIBUTION):
        with suppress(metadata.PackageNotFoundError):
            installed = metadata.version(distribution)
    return version_of(UNKNOWN if installed == FALLBACK else installed, REPOSITORY)


def version_of(installed: str, tree: Path) -> str:
    """`installed`, followed by the commit that `tree` is at now if the version names another one.

    An editable installation keeps its version when another commit is checked out, and then runs
    that one. A tree that is no git checkout has the version that it was installed as.
    """
    if not (tree / ".git").exists():
        return installed
    now = _commit(tree)
    _, _, local = installed.partition("+")
    named = local.partition(".")[0].removeprefix("g")
    if now is not None and named and now.startswith(named):
        return installed
    checkout = "unknown" if now is None else f"g{now[:9]}"
    return f"{installed}{'.' if local else '+'}checkout.{checkout}"


def _commit(tree: Path) -> str | None:
    """The commit that is checked out, read without git: it may be missing, or refuse the owner."""
    try:
        folder = tree / ".git"
        if folder.is_file():  # of a worktree
            folder = tree / folder.read_text().removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        shared = folder / "commondir"
        common = folder / shared.read_text().strip() if shared.exists() else folder
        return _commit_of(common, head.removeprefix("ref: "))
    except OSError:
        return None


def _commit_of(common: Path, ref: str) -> str | None:
    """The commit of a branch: in a file of its own, or in the file of packed ones."""
    loose = common / ref
    if loose.is_file():
        return loose.read_text().strip()
    for line in (common / "packed-refs").read_text().splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return None
