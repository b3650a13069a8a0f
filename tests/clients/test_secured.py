"""Every client over TLS, through the documented nginx, several times with one home."""

import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from tests.budgets import budget, only_full
from tests.clients.managers import (
    CLIENTS,
    FOLDER,
    NPM,
    Carrier,
    Done,
    Manager,
    Npm,
    Pip,
    Project,
    documented,
    is_installed,
)
from tests.clients.printed import PRINTED
from tests.clients.stands import (
    LOOKALIKE,
    POLICY,
    REASON,
    RULES,
    Key,
    Stand,
    serve_stand,
    stock,
    stock_pip,
    upstreams,
)
from tests.issuers.fixtures import IssuerProcess
from tests.nginx import NGINX, running_nginx
from tests.processes.homes import Home, add_acme, free_port
from tests.processes.package_registry import PackageRegistry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="no nginx on this machine"),
]

INSTALLS = 3
PACKAGES = 120
JOBS = budget(2, 4)


@dataclass(frozen=True)
class Without:
    """How a client is told to leave out an optional dependency."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Of the project's package.json."""

    options: tuple[str, ...] = ()
    replaced: str | None = None
    """The version of what it has in that place."""


LEAVE_OUT = {
    "pnpm 10": Without({"pnpm": {"ignoredOptionalDependencies": ["left-pda"]}}),
    "yarn 1": Without(options=("--ignore-optional",)),
    "yarn 4": Without({"resolutions": {"left-pda": "npm:left-pad@1.1.0"}}, replaced="1.1.0"),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of nginx, in which the certificate of its authority is, too."""
    return tmp_path_factory.mktemp("nginx")


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, packages: PackageRegistry, authority: Path
) -> Iterator[Stand]:
    stock(packages)
    stock_pip(packages)
    home, issuer, https = Home(tmp_path_factory.mktemp("secured")), IssuerProcess(), free_port()
    home.settings |= {**upstreams(packages), "trusted_proxies": "127.0.0.1"}
    try:
        home.change(add_acme)
        served = serve_stand(home, issuer, POLICY, f"https://127.0.0.1:{https}")
        with running_nginx(authority, https, served.server.port):
            yield served
    finally:
        home.end()
        issuer.stop()


@pytest.fixture
def app(tmp_path: Path, secured: Stand) -> Project:
    folder = tmp_path / "app"
    folder.mkdir()
    return Project(folder, secured.address)


@pytest.fixture
def key(secured: Stand) -> Key:
    return secured.key()


def use(project: Project, manager: Manager, key: Key, authority: Path) -> None:
    """Have `manager` use the key and trust nginx, each as its users do it."""
    carrier = documented(manager.client, project.address, key.secret)
    certificate = str(authority / "authority.pem")
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "npm_config_cafile")
    trust = dict.fromkeys(names, certificate)
    project.use(Carrier(carrier.variables | trust, carrier.npmrc))


def client(name: str) -> Manager:
    """A client by its name. A missing one is a failure, except on a machine without npm."""
    manager = CLIENTS[name]()
    if manager.ecosystem is Ecosystem.NPM and NPM is None:
        pytest.skip("no npm on this machine")
    if not is_installed():
        pytest.fail(f"{FOLDER} has no package managers: run sh tests/clients/install.sh {FOLDER}")
    return manager


def again(manager: Manager, project: Project, requirement: str) -> Done:
    """Install as in a new folder, with what the client keeps in its user's home."""
    project.start_over()
    manager.forget(project)
    return manager.add(project, requirement)


def of(stand: Stand, key: Key, name: str) -> list[tuple[str, str]]:
    """Decision and version of the rows of a package: pipx installs pip, too."""
    return [(row[0], row[3]) for row in stand.installs(key) if row[2] == name]


def test_pip_installs_twice(secured: Stand, app: Project, key: Key, authority: Path) -> None:
    """Its cache has pages over TLS alone, and stores the fields of a 304 over theirs."""
    pip = Pip((sys.executable, "-m", "pip"), has_cache=True)
    use(app, pip, key, authority)
    for _ in range(2):
        done = again(pip, app, "left-pad")
        assert (done.code, pip.version(app, "left-pad")) == (0, "1.1.0"), done.log


@pytest.mark.skipif(NPM is None, reason="no npm on this machine")
def test_locked_installs_of_many_packages_are_within_the_limits(
    secured: Stand,
    packages: PackageRegistry,
    app: Project,
    tmp_path: Path,
    key: Key,
    authority: Path,
) -> None:
    names = [f"part-{number}" for number in range(PACKAGES)]
    for name in names:
        packages.add_tarball(name, "1.0.0")
    packages.add_tarball("of-many", "1.0.0", dependencies=dict.fromkeys(names, "1.0.0"))
    npm = Npm()
    use(app, npm, key, authority)
    locked = npm.add(app, "of-many")
    assert locked.code == 0, locked.log

    jobs = [job_of(app, tmp_path / f"job-{number}", key, authority) for number in range(JOBS)]
    with ThreadPoolExecutor(JOBS) as threads:
        done = list(threads.map(npm.install_locked, jobs))

    assert [each.code for each in done] == [0] * JOBS, done
    assert {job.node_module(name) for job in jobs for name in names} == {"1.0.0"}
    log = (authority / "access.log").read_text().splitlines()
    statuses = [line.split()[4] for line in log]
    assert len(statuses) > JOBS * PACKAGES
    assert not {"429", "503"} & set(statuses)


def job_of(app: Project, folder: Path, key: Key, authority: Path) -> Project:
    """A project with the manifest and lock file of `app`."""
    folder.mkdir()
    job = Project(folder, app.address)
    use(job, Npm(), key, authority)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(app.folder / name, folder / name)
    return job


@only_full
@pytest.mark.parametrize("name", CLIENTS)
def test_installs_in_a_row_get_the_same(
    secured: Stand, app: Project, key: Key, authority: Path, name: str
) -> None:
    manager = client(name)
    use(app, manager, key, authority)
    for _ in range(INSTALLS):
        done = again(manager, app, "left-pad")
        assert (done.code, manager.version(app, "left-pad")) == (0, "1.1.0"), done.log

    assert of(secured, key, "left-pad") == [("ALLOWED", "1.1.0")]


@only_full
@pytest.mark.parametrize("name", CLIENTS)
def test_a_blocked_release_is_named_with_the_operator_s_reason(
    secured: Stand, app: Project, key: Key, authority: Path, name: str
) -> None:
    manager = client(name)
    use(app, manager, key, authority)
    reason = f"denied by rule {RULES[manager.ecosystem]}: {REASON}"
    wanted = PRINTED[name].wants(reason, is_marked=True)
    logs = [again(manager, app, manager.pinned("left-pad", "1.2.0")) for _ in range(INSTALLS)]

    assert_refused(logs, wanted)
    assert of(secured, key, "left-pad") == [("BLOCKED", "1.2.0")]


@only_full
@pytest.mark.parametrize("name", CLIENTS)
def test_a_package_without_an_allowed_release_is_named_with_the_reason(
    secured: Stand, app: Project, key: Key, authority: Path, name: str
) -> None:
    manager = client(name)
    use(app, manager, key, authority)
    reason = f"denied by rule lookalike-{manager.ecosystem}: {LOOKALIKE}"
    wanted = PRINTED[name].wants(reason, is_marked=False)
    logs = [again(manager, app, "left-pda") for _ in range(INSTALLS)]

    assert_refused(logs, wanted)
    assert of(secured, key, "left-pda") == [("BLOCKED", "1.1.0")]


def assert_refused(logs: list[Done], wanted: list[str]) -> None:
    """Each has failed, and its log has all of `wanted`, wherever lines are broken."""
    for done in logs:
        log = "".join(done.log.split())
        assert done.code != 0, done.log
        assert [part for part in wanted if part not in log] == [], done.log


@only_full
@pytest.mark.parametrize("name", [name for name in CLIENTS if name[:1] in "nyb" or "pnpm" in name])
def test_an_optional_dependency_that_is_blocked(
    secured: Stand, app: Project, key: Key, authority: Path, name: str
) -> None:
    """npm, pnpm 12 and bun go on without it; the others have a setting that leaves it out."""
    manager = client(name)
    use(app, manager, key, authority)
    done = again(manager, app, "picky")

    assert (done.code != 0) == (name in LEAVE_OUT), done.log
    if name in LEAVE_OUT:
        app.start_over()
        manager.prepare(app)
        manifest = app.folder / "package.json"
        settings = LEAVE_OUT[name].settings
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | settings))
        done = app.run(*manager.command("picky"), *LEAVE_OUT[name].options)
    assert done.code == 0, done.log
    assert manager.version(app, "picky") == "1.0.0"
    assert manager.version(app, "left-pda") == LEAVE_OUT.get(name, Without()).replaced
