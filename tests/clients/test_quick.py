"""The clients that most machines have, pip and npm: what `make test` tries of the matrix."""

from dataclasses import replace

import pytest

from analytics.model.ecosystems import Ecosystem
from tests.clients.managers import Manager, Project, documented
from tests.clients.stands import RULES, Stand
from tests.processes.package_registry import PackageRegistry

pytestmark = pytest.mark.slow


def test_an_install_is_decided_recorded_and_attributed(
    stand: Stand, project: Project, common: Manager
) -> None:
    key = stand.key()
    project.use(documented(common.client, stand.address, stand.install_token(key)))
    allowed = common.add(project, common.below_2("left-pad"))
    refused = common.add(project, common.pinned("left-pad", "1.2.0"))
    installed, blocked = stand.rows(key)

    assert allowed.code == 0, allowed.log
    assert (installed["decision"], installed["version"]) == ("ALLOWED", "1.1.0")
    assert installed["oidc_binding_id"] == stand.binding
    assert refused.code != 0, refused.log
    assert (blocked["decision"], blocked["version"]) == ("BLOCKED", "1.2.0")
    assert RULES[common.ecosystem] in refused.log
    assert blocked["id"] in refused.log


def test_an_install_whose_first_requests_get_a_429_succeeds(
    stand: Stand, packages: PackageRegistry, project: Project, common: Manager
) -> None:
    is_python = common.ecosystem is Ecosystem.PYPI
    (packages.add_wheel if is_python else packages.add_tarball)("wanted", "1.0.0")
    key = stand.key()
    carrier = documented(common.client, stand.address, key.secret)
    # npm would wait for ten seconds.
    soon = {"npm_config_fetch_retry_mintimeout": "1000"}
    project.use(replace(carrier, variables=carrier.variables | soon))
    packages.busy_for = 1
    try:
        done = common.add(project, common.pinned("wanted", "1.0.0"))
    finally:
        left, packages.busy_for = packages.busy_for, 0

    assert done.code == 0, done.log
    assert left == 0
    assert [row["decision"] for row in stand.rows(key)] == ["ALLOWED"]


def test_what_is_no_package_is_not_looked_for_upstream(
    stand: Stand, packages: PackageRegistry
) -> None:
    """The search of npm has a path of its own beside packages, and is not served."""
    headers = {"authorization": f"Bearer {stand.key().secret}"}
    with stand.server.client(headers=headers) as client:
        searched = client.get("/proxy/acme/npm/-/v1/search?text=left-pad")

    assert searched.status_code == 404
    assert not [path for path in packages.asked if path.startswith("/npm/-/v1")]
    assert "/npm/-" not in packages.asked
