"""What a process that serves does not import: memory that every one of them would take."""

import json
import subprocess
import sys

import pytest

from service.app.composition import Services
from service.core.settings import REPOSITORY
from service.orgs.api_keys import issue_api_key
from service.store.organisations import get_org
from tests.budgets import only_full
from tests.clients.stands import stock
from tests.conftest import BY_OPERATOR
from tests.polling import HANG_S
from tests.processes.homes import Home
from tests.processes.package_registry import running_packages

pytestmark = pytest.mark.slow

PATHS = (
    "/proxy/acme/pypi/simple/left-pad/",
    "/proxy/acme/npm/left-pad",
    "/proxy/acme/npm/left-pad/-/left-pad-1.0.0.tgz",
)
LATE = {"polars", "alembic"}
"""Packages for exports of rare texts (40 MB) and migrations (10 MB) alone."""


async def _secret(services: Services) -> str:
    async with services.store.write() as work:
        org = await get_org(work.session, "acme")
        scopes = ("packages:install",)
        _, secret = await issue_api_key(work, org, "ci", None, BY_OPERATOR, scopes=scopes)
    return secret


@only_full
def test_pages_and_files_are_served_without_what_few_requests_need(quiet_home: Home) -> None:
    """Each of several processes would hold it for as long as it lives."""
    secret = quiet_home.change(_secret)
    with running_packages() as registry:
        stock(registry)
        environment = quiet_home.environment(
            proxy_pypi_upstream=f"{registry.url}/simple/",
            proxy_npm_upstream=f"{registry.url}/npm/",
        )
        served = subprocess.run(
            [sys.executable, "-m", "tests.processes.served_pages", secret, *PATHS],
            env=environment,
            capture_output=True,
            timeout=HANG_S,
        )

    assert served.returncode == 0, served.stderr.decode()
    modules = set(json.loads(served.stdout.splitlines()[-1]))
    assert {"service.packages.pypi.routes", "pyarrow"} <= modules
    assert LATE & modules == set()


@pytest.fixture(scope="module")
def preloading() -> subprocess.CompletedProcess[bytes]:
    """An interpreter that has loaded what others are forked with, and what it tells of itself."""
    program = """
import json, os, sys, threading
from contextlib import suppress
before = set(os.listdir("/proc/self/fd"))
import service.app.preloaded
threads, files = [], []
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/comm") as file:
        threads.append(file.read().strip())
for name in set(os.listdir("/proc/self/fd")) - before:
    with suppress(FileNotFoundError):
        files.append(os.readlink(f"/proc/self/fd/{name}"))
print(json.dumps([threads, files, threading.active_count(), sorted(sys.modules)]))
"""
    return subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True)


def test_what_is_loaded_before_a_fork_opens_nothing(
    preloading: subprocess.CompletedProcess[bytes],
) -> None:
    """A fork would share open files with all others, and lack the threads."""
    threads, files, in_python, _ = json.loads(preloading.stdout)

    # Arrow's allocator has a thread of its own, and knows what to do at a fork.
    assert [name for name in threads if "jemalloc" not in name] == ["python"]
    assert files == []
    assert in_python == 1


def test_what_only_some_processes_need_is_not_loaded_before_a_fork(
    preloading: subprocess.CompletedProcess[bytes],
) -> None:
    """It takes memory, and time at each start."""
    *_, modules = json.loads(preloading.stdout)

    assert {"rich.console", "webauthn", "alembic"} & set(modules) == set()


def test_the_process_that_others_are_forked_from_ends_without_a_word(
    preloading: subprocess.CompletedProcess[bytes],
) -> None:
    """Libraries report what is never released, such as what no collector looks through."""
    assert (preloading.returncode, preloading.stderr) == (0, b"")
