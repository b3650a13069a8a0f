"""Every client installs the newest release that is allowed, and fails on one that is not."""

from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from service.packages.npm.clients import PNPM, YARN_1
from tests.budgets import only_full
from tests.clients.managers import Done, Manager, Project, documented
from tests.clients.stands import RULES, RUN_ID, Key, Stand
from tests.processes.package_registry import PackageRegistry

pytestmark = [pytest.mark.slow, only_full]

HIDES_ADDRESS = {PNPM, YARN_1}
"""They do not print where they were sent, and so no audit row."""


@pytest.fixture
def key(stand: Stand, project: Project, manager: Manager) -> Key:
    """A key of the test's own, which the client uses as the documentation says."""
    key = stand.key()
    project.use(documented(manager.client, stand.address, key.secret))
    return key


def test_one_install_is_one_row(stand: Stand, project: Project, manager: Manager, key: Key) -> None:
    done = manager.add(project, manager.below_2("left-pad"))

    assert done.code == 0, done.log
    assert manager.version(project, "left-pad") == "1.1.0"
    assert stand.installs(key) == [("ALLOWED", manager.ecosystem, "left-pad", "1.1.0")]


def test_without_a_version_the_newest_one_allowed_is_taken(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    """Npm's `latest` points at a denied release upstream, and at an allowed one in the proxy."""
    done = manager.add(project, "left-pad")

    assert done.code == 0, done.log
    assert manager.version(project, "left-pad") == "1.1.0"
    assert stand.installs(key) == [("ALLOWED", manager.ecosystem, "left-pad", "1.1.0")]


def test_a_denied_release_fails_the_install(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    done = manager.add(project, manager.pinned("left-pad", "1.2.0"))
    row, rule = only_row(stand, key), RULES[manager.ecosystem]

    assert done.code != 0, done.log
    assert manager.version(project, "left-pad") is None
    assert (row["decision"], row["event"], row["version"]) == ("BLOCKED", "blocklist_hit", "1.2.0")
    assert row["decision_reason"] == f'{{"rule_id":"{rule}","source":"operator"}}'
    assert_says(done, manager, rule, row["id"])


def test_a_release_in_its_cooldown_is_left_out(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    """1.1.0 was published two days ago; the cooldown is seven days."""
    done = manager.add(project, manager.below_2("fresh"))

    assert done.code == 0, done.log
    assert manager.version(project, "fresh") == "1.0.0"
    assert stand.installs(key) == [("ALLOWED", manager.ecosystem, "fresh", "1.0.0")]


def test_a_release_in_its_cooldown_fails_the_install_if_it_is_pinned(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    done = manager.add(project, manager.pinned("fresh", "1.1.0"))
    row = only_row(stand, key)

    assert done.code != 0, done.log
    assert manager.version(project, "fresh") is None
    assert (row["decision"], row["event"]) == ("BLOCKED", "cooldown_active")
    texts = {YARN_1: "too new: published", PNPM: "too-new-published"}
    assert_says(done, manager, texts.get(manager.client, "too+new:+published"), row["id"])


def test_a_release_of_weaker_provenance_is_left_out(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    """1.0.0 has an attestation, and 1.1.0, which was published later, has none."""
    done = manager.add(project, manager.below_2("attested"))

    assert done.code == 0, done.log
    assert manager.version(project, "attested") == "1.0.0"
    assert stand.installs(key) == [("ALLOWED", manager.ecosystem, "attested", "1.0.0")]


def test_a_release_of_weaker_provenance_fails_the_install_if_it_is_pinned(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    done = manager.add(project, manager.pinned("attested", "1.1.0"))
    row = only_row(stand, key)

    assert done.code != 0, done.log
    assert manager.version(project, "attested") is None
    assert (row["decision"], row["event"]) == ("BLOCKED", "trust_downgraded")
    texts = {YARN_1: "trust downgraded: none", PNPM: "trust-downgraded-none"}
    assert_says(done, manager, texts.get(manager.client, "trust+downgraded:+none"), row["id"])


def test_the_cure_need_not_wait(stand: Stand, project: Project, manager: Manager, key: Key) -> None:
    """An advisory is on 1.0.0; 1.1.0 and 1.2.0 were published two days ago."""
    done = manager.add(project, manager.below_2("cured"))
    row = only_row(stand, key)

    assert done.code == 0, done.log
    assert manager.version(project, "cured") == "1.1.0"
    assert row["event"] == "install_allowed"
    assert row["payload"]["cured"]["affected"] == "1.0.0"


def test_a_first_party_name_never_comes_from_upstream(
    stand: Stand, packages: PackageRegistry, project: Project, manager: Manager, key: Key
) -> None:
    """A stranger's package of that name is upstream: neither its page nor its file is requested."""
    done = manager.add(project, "acme-internal")

    assert done.code != 0, done.log
    assert manager.version(project, "acme-internal") is None
    assert stand.installs(key) == []
    assert not [path for path in packages.asked if "acme-internal" in path]


def test_a_name_is_found_however_it_is_written(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    """PyPI's names have one canonical form, npm's scoped names a slash, which clients escape."""
    is_python = manager.ecosystem is Ecosystem.PYPI
    wanted = "Left.Pad==1.1.0" if is_python else "@tools/pad"
    done = manager.add(project, wanted)
    allowed = [("ALLOWED", manager.ecosystem, "left-pad", "1.1.0")]

    assert done.code == 0, done.log
    if not is_python:  # which needs left-pad
        assert manager.version(project, "@tools/pad") == "2.1.0"
        allowed.append(("ALLOWED", "npm", "@tools/pad", "2.1.0"))
    assert sorted(stand.installs(key)) == sorted(allowed)


def test_extras_bring_their_packages(
    stand: Stand, project: Project, python_manager: Manager, key: Key
) -> None:
    """What an extra needs is in a wheel's metadata, which the proxy reads."""
    done = python_manager.add(project, "whole[more]>=2")

    assert done.code == 0, done.log
    assert python_manager.version(project, "part") == "3.1.0"
    assert sorted(stand.installs(key)) == [
        ("ALLOWED", "pypi", "part", "3.1.0"),
        ("ALLOWED", "pypi", "whole", "2.0.0"),
    ]


def test_a_job_s_install_names_its_run(
    stand: Stand, project: Project, manager: Manager, key: Key
) -> None:
    token = stand.install_token(key)
    project.use(documented(manager.client, stand.address, token))
    done = manager.add(project, manager.below_2("left-pad"))
    row = only_row(stand, key)

    assert done.code == 0, done.log
    assert (row["decision"], row["ecosystem"]) == ("ALLOWED", manager.ecosystem)
    assert (row["oidc_binding_id"], row["run_id"]) == (stand.binding, RUN_ID)


def only_row(stand: Stand, key: Key) -> dict[str, Any]:
    rows = stand.rows(key)
    assert len(rows) == 1, rows
    return rows[0]


def assert_says(done: Done, manager: Manager, reason: str, audit_id: object) -> None:
    """The log has the reason and the audit row's id, unless the client keeps them for itself.

    yarn 1 prints the reason as a deprecation; pnpm says that the release is deprecated, and which
    address answers 403: the reason is in that.
    """
    log = done.log
    if manager.client is PNPM:
        assert "[WARN] deprecated" in log, log
        log = "".join(line.strip() for line in log.splitlines())  # which pnpm breaks
        assert "HTTP 403" in log
    assert reason in log, done.log
    assert (str(audit_id) in done.log) == (manager.client not in HIDES_ADDRESS), done.log
