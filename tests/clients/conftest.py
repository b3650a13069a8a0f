"""One server for all clients: each test has a key, a project and caches of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from analytics.model.ecosystems import Ecosystem
from tests.clients.managers import (
    FOLDER,
    NPM,
    Manager,
    Npm,
    Pip,
    Pnpm,
    Poetry,
    Project,
    Uv,
    UvPip,
    Yarn,
    Yarn1,
    is_installed,
)
from tests.clients.stands import Stand, build_stand
from tests.issuers.fixtures import IssuerProcess
from tests.processes.homes import Home, add_acme
from tests.processes.package_registry import PackageRegistry, running_packages

_MANAGERS = {
    "pip": Pip,
    "uv": Uv,
    "uv pip": UvPip,
    "poetry": Poetry,
    "npm": Npm,
    "pnpm": Pnpm,
    "yarn 1": Yarn1,
    "yarn 4": Yarn,
}


@pytest.fixture(scope="session")
def packages() -> Iterator[PackageRegistry]:
    """The registry on loopback that the proxy asks."""
    with running_packages() as registry:
        yield registry


@pytest.fixture(scope="session")
def stand(tmp_path_factory: pytest.TempPathFactory, packages: PackageRegistry) -> Iterator[Stand]:
    home, issuer = Home(tmp_path_factory.mktemp("stand")), IssuerProcess()
    try:
        home.change(add_acme)
        yield build_stand(home, packages, issuer)
    finally:
        home.end()
        issuer.stop()


@pytest.fixture(params=Ecosystem, scope="module")
def common(request: pytest.FixtureRequest) -> Manager:
    """The pip beside this interpreter, whichever version it is, and npm if it is there."""
    if request.param is Ecosystem.PYPI:
        return Pip((sys.executable, "-m", "pip"))
    if NPM is None:
        pytest.skip("no npm on this machine")
    return Npm()


@pytest.fixture
def project(tmp_path: Path, stand: Stand) -> Project:
    """An empty one; no folder above it is another project's."""
    folder = tmp_path / "app"
    folder.mkdir()
    return Project(folder, stand.address)


@pytest.fixture(params=_MANAGERS)
def manager(request: pytest.FixtureRequest) -> Manager:
    """Each package manager. A missing one is a failure, except on a machine without npm."""
    manager = _MANAGERS[request.param]()
    if manager.ecosystem is Ecosystem.NPM and NPM is None:
        pytest.skip("no npm on this machine")
    if not is_installed():
        pytest.fail(f"{FOLDER} has no package managers: run sh tests/clients/install.sh {FOLDER}")
    return manager


@pytest.fixture
def python_manager(manager: Manager) -> Manager:
    if manager.ecosystem is not Ecosystem.PYPI:
        pytest.skip("of Python alone")
    return manager
