"""The lines that `countersign demo` prints, pasted: one installs, and one is blocked."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.cli.demo.installs import KEY_NAME
from service.packages.clients import ProxyAddress
from tests.budgets import only_full
from tests.clients.managers import Carrier, Done, Project
from tests.polling import eventually
from tests.processes.homes import DEADLINE_S, Home, Server, add_acme, all_entries, owner_cookie
from tests.processes.package_registry import running_packages

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """An organisation acme with an owner, which the demo takes as its own.

    To make its 90 days of history takes longer than all else here.
    """
    home = Home(tmp_path)
    home.change(add_acme)
    home.change(owner_cookie)
    yield home
    home.end()


@contextmanager
def demo(home: Home) -> Iterator[tuple[Server, dict[str, Any]]]:
    process = home.begin("demo", "--json")
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, b"}\n")
        said = json.loads(b"".join(lines) + b"}")
        log = home.folder / "demo.log"
        log.touch()
        yield Server(process, int(said["url"].rpartition(":")[2]), log).wait_ready(), said
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.communicate()


def demo_keys(home: Home) -> list[dict[str, Any]]:
    """The demo's keys that are not revoked."""
    keys = home.listed("apikey", "list", "--org", "acme")
    return [key for key in keys if key["name"] == KEY_NAME and key["revoked_at"] is None]


def paste(line: str, folder: Path) -> Done:
    """Run a line with the pip beside this interpreter, apart from the machine's settings."""
    program, *arguments = shlex.split(line)
    assert program == "pip"
    folder.mkdir()
    project = Project(folder, ProxyAddress("", ""))
    project.use(Carrier({}))
    return project.run(sys.executable, "-m", "pip", *arguments, "--no-cache-dir")


@only_full
def test_the_built_in_packages_are_installed_and_blocked(home: Home, tmp_path: Path) -> None:
    with demo(home) as (server, said):
        allowed = paste(said["installs"]["allowed"], tmp_path / "allowed")
        blocked = paste(said["installs"]["blocked"], tmp_path / "blocked")
        with server.client() as operator:
            second, first = all_entries(operator, ecosystem="pypi")

    assert allowed.code == 0, allowed.log
    assert "Successfully installed countersign-hello-1.0.0" in allowed.log
    assert (tmp_path / "allowed" / "demo-packages" / "countersign_hello.py").exists()
    assert (first["event"], first["packageName"]) == ("install_allowed", "countersign-hello")
    assert blocked.code != 0
    assert (second["event"], second["packageName"]) == ("blocklist_hit", "acme-ledgr")
    assert (
        f"{second['id']}/acme-ledgr/0.1.0/denied+by+rule+acme-lookalike-names-pypi" in blocked.log
    )


@only_full
def test_an_upstream_that_is_configured_is_asked(home: Home, tmp_path: Path) -> None:
    with running_packages() as packages:
        packages.add_wheel("six", "1.17.0")
        packages.add_wheel("pycrypto", "2.6.1")
        home.settings["proxy_pypi_upstream"] = f"{packages.url}/simple/"
        with demo(home) as (_, said):
            allowed = paste(said["installs"]["allowed"], tmp_path / "allowed")
            blocked = paste(said["installs"]["blocked"], tmp_path / "blocked")

    assert "Successfully installed six-1.17.0" in allowed.log
    assert blocked.code != 0
    assert "denied+by+rule+acme-unmaintained" in blocked.log


@only_full
def test_each_start_has_a_key_of_its_own(home: Home) -> None:
    """Its secret is printed, so it may only install, expires, and ends the one before."""
    with demo(home) as (_, first):
        (before,) = demo_keys(home)
    with demo(home) as (_, second):
        (after,) = demo_keys(home)

    assert first["installs"] != second["installs"]
    assert before["id"] != after["id"]
    assert after["scopes"] == ["packages:install"]
    assert after["expires_at"] is not None


def test_without_a_server_no_key_is_issued(home: Home) -> None:
    said = home.ask("demo", "--no-serve")

    assert "installs" not in said
    assert demo_keys(home) == []


@only_full
def test_the_whole_demo_installs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    try:
        with demo(home) as (server, said):
            blocked = paste(said["installs"]["blocked"], tmp_path / "blocked")
            with server.client() as operator:
                read = operator.get("/api/v1/admin/orgs/acme/policy").json()
    finally:
        home.end()

    assert "denied+by+rule+acme-lookalike-names-pypi" in blocked.log
    assert read["revision"] == 2
    assert "acme-lookalike-names" in [rule["id"] for rule in read["policy"]["deny"]]


def test_people_are_shown_both_lines(home: Home) -> None:
    process = home.begin("demo")
    assert process.stdout is not None
    shown: list[bytes] = []

    def is_all() -> bool:
        shown.append(process.stdout.readline())
        return b"Stop with Ctrl-C" in shown[-1]

    try:
        eventually(is_all, "the whole text", every_s=0)
    finally:
        process.kill()
        process.communicate()
    lines = [line.strip().decode() for line in shown]
    pasted = [line for line in lines if line.startswith("pip install ")]
    assert [line.rpartition(" ")[2] for line in pasted] == [
        "countersign-hello",
        "acme-ledgr==0.1.0",
    ]
