"""Process tests: a data dir in a temporary folder, and no process that outlives its test."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ADMIN_TOKEN
from tests.databases import copy_data_dir, keep_until_the_end
from tests.proc_files import children, command
from tests.processes.desks import Desk
from tests.processes.exports import add_history
from tests.processes.homes import Home, Server, add_acme, owner_cookie


@pytest.fixture
def own_forkserver() -> Iterator[None]:
    """Supervisors of this process fork from a process with the files of their own test.

    multiprocessing starts another one when that has ended.
    """
    yield
    for child in children(os.getpid()):
        if b"multiprocessing.forkserver" in command(child):
            os.kill(child, signal.SIGKILL)
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def empty_home(tmp_path: Path) -> Iterator[Home]:
    """A data dir that is not there yet."""
    home = Home(tmp_path)
    try:
        yield home
    finally:
        home.end()


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data dir with the organisation acme, to be copied: to migrate one takes longer."""
    model = Home(tmp_path_factory.mktemp("acme"))
    model.change(add_acme)
    return keep_until_the_end(model.data_dir)


@pytest.fixture
def home(empty_home: Home, acme: Path) -> Home:
    copy_data_dir(acme, empty_home.data_dir)
    return empty_home


@pytest.fixture(scope="module")
def quiet_home(tmp_path_factory: pytest.TempPathFactory, acme: Path) -> Iterator[Home]:
    """A data dir with acme for commands that are refused, and so change nothing in it."""
    home = Home(tmp_path_factory.mktemp("quiet"))
    copy_data_dir(acme, home.data_dir)
    yield home
    home.end()


@pytest.fixture(scope="module")
def quiet_server(quiet_home: Home) -> Server:
    """A server for tests that change nothing: to start one takes over a second."""
    return quiet_home.serve()


@pytest.fixture(scope="session")
def long_history(tmp_path_factory: pytest.TempPathFactory, acme: Path) -> Path:
    """A data dir with an audit log larger than what sockets buffer, to be copied."""
    model = Home(tmp_path_factory.mktemp("long"))
    copy_data_dir(acme, model.data_dir)
    model.change(add_history)
    return keep_until_the_end(model.data_dir)


@pytest.fixture
def long_home(empty_home: Home, long_history: Path) -> Home:
    copy_data_dir(long_history, empty_home.data_dir)
    return empty_home


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(folder)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, acme: Path) -> Iterator[Home]:
    """A data dir with acme and a server for all tests of this module."""
    home = Home(tmp_path_factory.mktemp("there"))
    copy_data_dir(acme, home.data_dir)
    yield home
    home.end()


@pytest.fixture(scope="module")
def server(there: Home) -> Server:
    return there.serve()


@pytest.fixture(scope="module")
def ada(there: Home, server: Server) -> str:
    return there.change(owner_cookie)


@pytest.fixture
def signed_in(desk: Desk, server: Server) -> Desk:
    """Signed in with the admin token."""
    desk.ask("login", server.url, "--with-token", given=f"{ADMIN_TOKEN}\n")
    return desk
