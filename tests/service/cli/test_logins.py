"""The file of logins: private, replaced as a whole, changed by one process at a time."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.cli import logins
from service.cli.logins import (
    Credential,
    Login,
    Logins,
    LoginsUnusable,
    changed_logins,
    config_dir,
    load_logins,
    logins_path,
)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def sign_in(server: str) -> None:
    with changed_logins() as held:
        held[0] = held[0].with_login(Login(server, Credential("api_key", "cs_secret"), "acme"))


def test_a_login_is_stored_for_its_owner_alone(config):
    before = os.umask(0)
    try:
        sign_in("https://a.example")
    finally:
        os.umask(before)

    assert stat.S_IMODE(logins_path().stat().st_mode) == 0o600
    assert stat.S_IMODE((config / "countersign").stat().st_mode) == 0o700
    login = load_logins().in_use
    assert login == Login("https://a.example", Credential("api_key", "cs_secret"), "acme")
    assert "cs_secret" not in repr(login)


def test_a_failure_while_it_is_written_leaves_the_former_file(monkeypatch):
    sign_in("https://a.example")
    before = logins_path().read_bytes()

    def fail(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(logins.os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        sign_in("https://b.example")

    assert logins_path().read_bytes() == before
    assert sorted(path.name for path in logins_path().parent.iterdir()) == [".lock", "logins.json"]


def test_two_processes_that_sign_in_at_once_keep_both_logins():
    servers = [f"https://s{number}.example" for number in range(8)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(sign_in, servers))

    assert sorted(load_logins().by_server) == servers
    assert json.loads(logins_path().read_text())["version"] == 1


@pytest.mark.parametrize("given", ["", "relative/path"])
def test_the_folder_is_below_home_unless_an_absolute_one_is_named(given):
    """As the XDG Base Directory Specification says."""
    assert config_dir({"XDG_CONFIG_HOME": given}) == Path.home() / ".config" / "countersign"
    assert config_dir({"XDG_CONFIG_HOME": "/x"}) == Path("/x/countersign")


def test_without_a_home_directory_there_are_no_logins(monkeypatch):
    """As in a container whose user id has no entry: a token in a variable needs no file."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", no_home)

    assert load_logins() == Logins()
    with pytest.raises(LoginsUnusable, match="set HOME or XDG_CONFIG_HOME"):
        sign_in("https://a.example")
