"""The programs of PostgreSQL 15, and the account that runs them: root must not."""

import os
import pwd
import shutil
from pathlib import Path
from typing import Any, Final

VERSION: Final = "15"
_INSTALLED: Final = Path(f"/usr/lib/postgresql/{VERSION}/bin")
_ACCOUNTS: Final = ("postgres", "daemon")
"""Accounts to run it as if we are root, as which it refuses to run."""


def find_program(name: str) -> Path:
    """Debian's, which is not on the PATH, or else the one on the PATH.

    Raises FileNotFoundError, which names what to install.
    """
    installed = _INSTALLED / name
    found = str(installed) if installed.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(
            f"no {name} of PostgreSQL {VERSION}: install Debian's postgresql-{VERSION}, "
            f"or put the programs of PostgreSQL {VERSION} on the PATH"
        )
    return Path(found)


def run_as() -> dict[str, Any]:
    """Options for subprocess that run a program as an account which is not root."""
    account = _account()
    if account is None:
        return {}
    return {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": []}


def give_away(path: Path) -> None:
    """Let the account that `run_as` names own `path`."""
    account = _account()
    if account is not None:
        shutil.chown(path, account, pwd.getpwnam(account).pw_gid)


def _account() -> str | None:
    """The account to run it as; None is the current one."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _ACCOUNTS if name in names)
