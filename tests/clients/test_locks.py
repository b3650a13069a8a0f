"""Lock files that were made through the proxy: they verify what it serves, and hold no secret."""

import base64
import re

import pytest

from service.packages.npm.clients import NPM_CLIENT, YARN_1
from service.packages.pypi.clients import PIP, POETRY, UV
from tests.budgets import only_full
from tests.clients.managers import Manager, Project, UvPip, documented
from tests.clients.stands import Key, Stand

pytestmark = [pytest.mark.slow, only_full]

NAMES_PROXY = {UV, POETRY, NPM_CLIENT, YARN_1}

_SHA256 = re.compile(r"(?<=sha256:)[0-9a-f]{64}")
_SHA512 = re.compile(r"(?<=sha512-)[A-Za-z0-9+/=]{88}")
_OF_YARN = re.compile(r"(?<=checksum: 10c0/)[0-9a-f]{128}")


def lock(stand: Stand, project: Project, manager: Manager) -> Key:
    """Lock left-pad 1.1.0, and use another key from now on, with empty caches."""
    first, second = stand.key(), stand.key()
    project.use(documented(manager.client, stand.address, first.secret))
    if manager.client is PIP or isinstance(manager, UvPip):
        manager.prepare(project)
        digest = sha256_of(stand, first)
        text = f"left-pad==1.1.0 --hash=sha256:{digest}\n"
        (project.folder / manager.lock).write_text(text)
    else:
        done = manager.add(project, manager.below_2("left-pad"))
        assert done.code == 0, done.log
    written = (project.folder / manager.lock).read_text()
    assert "1.1.0" in written
    assert first.secret not in written
    project.use(documented(manager.client, stand.address, second.secret))
    return second


def sha256_of(stand: Stand, key: Key) -> str:
    """What the proxy's index says of left-pad 1.1.0."""
    with stand.server.client(headers={"authorization": f"Bearer {key.secret}"}) as client:
        accept = {"accept": "application/vnd.pypi.simple.v1+json"}
        page = client.get("/proxy/acme/pypi/simple/left-pad/", headers=accept).json()
    (digest,) = (
        file["hashes"]["sha256"] for file in page["files"] if "-1.1.0-" in file["filename"]
    )
    return str(digest)


def test_a_locked_install_is_one_row(stand: Stand, project: Project, manager: Manager) -> None:
    """`pip --require-hashes`, `uv sync --locked`, `npm ci` and their like."""
    key = lock(stand, project, manager)
    done = manager.install_locked(project)

    assert done.code == 0, done.log
    assert manager.version(project, "left-pad") == "1.1.0"
    assert stand.installs(key) == [("ALLOWED", manager.ecosystem, "left-pad", "1.1.0")]


def test_a_file_with_another_digest_is_not_installed(
    stand: Stand, project: Project, manager: Manager
) -> None:
    lock(stand, project, manager)
    file = project.folder / manager.lock
    changed = file.read_text()
    for pattern, other in (
        (_SHA256, "0" * 64),
        (_SHA512, base64.b64encode(bytes(64)).decode()),
        (_OF_YARN, "0" * 128),
    ):
        changed = pattern.sub(other, changed)
    assert changed != file.read_text()
    file.write_text(changed)
    done = manager.install_locked(project)

    assert done.code != 0, done.log
    assert manager.version(project, "left-pad") is None


def test_a_locked_release_that_is_denied_by_now_fails_the_install(
    stand: Stand, project: Project, manager: Manager
) -> None:
    key = lock(stand, project, manager)
    path = "/api/v1/admin/orgs/acme/policy"
    with stand.server.client() as operator:
        read = operator.get(path)
        deny = {"ecosystem": manager.ecosystem, "package": "left-pad", "id": "all-of-it"}
        policy = read.json()["policy"]
        changed = policy | {"deny": [*policy["deny"], deny]}
        put = operator.put(path, headers={"if-match": read.headers["etag"]}, json=changed)
        assert put.status_code == 200, put.text
        try:
            done = manager.install_locked(project)
        finally:
            assert operator.put(path, headers={"if-match": "*"}, json=policy).status_code == 200

    assert done.code != 0, done.log
    assert manager.version(project, "left-pad") is None
    assert stand.installs(key) == [("BLOCKED", manager.ecosystem, "left-pad", "1.1.0")]


def test_some_locks_name_the_proxy(stand: Stand, project: Project, manager: Manager) -> None:
    """Then an install elsewhere goes through the proxy, too; the page of the docs says which."""
    lock(stand, project, manager)
    written = (project.folder / manager.lock).read_text()
    has_address = f"{stand.server.url}/proxy/acme/" in written

    assert has_address == (manager.client in NAMES_PROXY and not isinstance(manager, UvPip))
