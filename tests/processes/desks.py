"""The machine of a person who uses a server: no data dir, and a config dir of its own."""

import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.budgets import IS_FULL
from tests.interpreters import start_module
from tests.processes.command_line import Ran, invoke
from tests.processes.homes import CLI, DEADLINE_S, Server

QUICK_SIGN_IN: Final = "tests.processes.quick_sign_in"


class Desk:
    """A person's machine: no data dir, a config dir of its own."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "config"
        self.folder = folder

    @property
    def logins(self) -> Path:
        return self.config / "countersign" / "logins.json"

    def environment(self, **more: str) -> dict[str, str]:
        ours = {"XDG_CONFIG_HOME": str(self.config), "HOME": str(self.folder)}
        return {"PATH": os.environ["PATH"], **ours, **more}

    def order(self, *words: str, given: str = "", **variables: str) -> Ran:
        with ThreadPoolExecutor(1) as thread:
            arguments = (words, self.environment(**variables), given.encode())
            return thread.submit(invoke, *arguments).result()

    def ask(self, *words: str, given: str = "", **variables: str) -> Any:
        ran = self.order(*words, "--json", given=given, **variables)
        assert ran.code == 0, (words, ran)
        return ran.json

    def listed(self, *words: str, **variables: str) -> Any:
        """The entries of a list: the one member of the object that `ask` returns."""
        (entries,) = self.ask(*words, **variables).values()
        return entries


def approve(server: Server, cookie: str, code: str, decision: str = "approve") -> None:
    """What the owner does on the page `/device`."""
    headers = {"cookie": f"admin_session={cookie}", "origin": server.url}
    with server.client(headers=headers) as browser:
        page = browser.get("/device").text
        csrf = re.search(r'name="csrf" value="(\w+)"', page)[1]
        form = {"csrf": csrf, "code": code}
        assert browser.post("/device", data=form).status_code == 200
        answer = browser.post("/device/decision", data=form | {"decision": decision})
        assert answer.status_code == 200


def by_browser(
    desk: Desk, server: Server, cookie: str, decision: str = "approve", words: Sequence[str] = ()
) -> Ran:
    """`countersign login`, or the command in `words`, while the owner decides in a browser."""
    process = start_module(
        CLI if IS_FULL else QUICK_SIGN_IN,
        *(words or ("login", server.url)),
        "--json",
        env=desk.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    shown = process.stderr.readline().decode()
    while words and "enter the code" not in shown:
        assert shown, "it ended without a code"
        shown = process.stderr.readline().decode()
    code = re.search(r"[A-Z]{4}-[A-Z]{4}", shown)[0]
    assert f"Open {server.url}/device and enter the code" in shown
    approve(server, cookie, code, decision)
    out, err = process.communicate(timeout=DEADLINE_S)
    return Ran(process.returncode, out.decode(), err.decode())
