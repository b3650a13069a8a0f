"""What is cached installs with any fault of the registry, in about the usual time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from analytics.model.ecosystems import Ecosystem
from tests.clients.managers import Manager, Project, documented
from tests.clients.stands import Stand, build_stand
from tests.issuers.fixtures import IssuerProcess
from tests.polling import eventually
from tests.processes.homes import Home, add_acme
from tests.processes.package_registry import FAULTS, PackageRegistry, running_packages

pytestmark = [pytest.mark.slow, pytest.mark.full]

PARTS = {Ecosystem.PYPI: 40, Ecosystem.NPM: 60}
MAX_AGE_S = 1


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageRegistry]:
    """A registry with a package of many parts in each ecosystem."""
    with running_packages() as registry:
        for number in range(PARTS[Ecosystem.PYPI]):
            registry.add_wheel(f"part-{number}", "1.0.0")
        requires = tuple(f"part-{number}" for number in range(PARTS[Ecosystem.PYPI]))
        registry.add_wheel("assembly", "1.0.0", requires=requires)
        for number in range(PARTS[Ecosystem.NPM]):
            registry.add_tarball(f"part-{number}", "1.0.0")
        parts = {f"part-{number}": "^1.0.0" for number in range(PARTS[Ecosystem.NPM])}
        registry.add_tarball("assembly", "1.0.0", dependencies=parts)
        yield registry


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, packages: PackageRegistry) -> Iterator[Stand]:
    """Of its own: it asks the registry about every page that is older than a second."""
    home, issuer = Home(tmp_path_factory.mktemp("stand")), IssuerProcess()
    home.settings["proxy_index_max_age_s"] = str(MAX_AGE_S)
    try:
        home.change(add_acme)
        yield build_stand(home, packages, issuer)
    finally:
        home.end()
        issuer.stop()


def install(stand: Stand, folder: Path, manager: Manager) -> set[str]:
    """Install all parts in a new project with empty caches; those that arrived."""
    folder.mkdir(parents=True)
    project = Project(folder, stand.address)
    project.use(documented(manager.client, stand.address, stand.key().secret))
    done = manager.add(project, manager.below_2("assembly"))
    assert done.code == 0, done.log
    is_python = manager.ecosystem is Ecosystem.PYPI
    version_of = project.python_module if is_python else project.node_module
    names = ("assembly", *(f"part-{number}" for number in range(PARTS[manager.ecosystem])))
    return {name for name in names if version_of(name) == "1.0.0"}


@pytest.fixture(scope="module")
def usual(stand: Stand, common: Manager, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What is installed from a registry that is well, and so cached."""
    return install(stand, tmp_path_factory.mktemp("usual") / "app", common)


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_what_is_cached_installs(
    stand: Stand,
    packages: PackageRegistry,
    tmp_path: Path,
    common: Manager,
    usual: set[str],
    fault: str | None,
) -> None:
    """The durations of these cases are to be compared; the first one is without a fault."""
    packages.fault = fault
    try:
        installed = install(stand, tmp_path / "app", common)
    finally:
        packages.fault = None
    assert len(usual) == PARTS[common.ecosystem] + 1
    assert installed == usual

    # And the registry is asked again once it is well.
    add = packages.add_wheel if common.ecosystem is Ecosystem.PYPI else packages.add_tarball
    version = f"2.0.{len(packages.wheels) + len(packages.asked)}"
    add("newest", version)
    path = {Ecosystem.PYPI: "pypi/simple/newest/", Ecosystem.NPM: "npm/newest"}[common.ecosystem]
    headers = {"authorization": f"Bearer {stand.key().secret}"}
    with stand.server.client(headers=headers) as client:
        eventually(
            lambda: version in client.get(f"/proxy/acme/{path}").text, "the new release is seen"
        )
