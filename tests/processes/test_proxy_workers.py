"""The install proxy of several processes: what one of them is told holds in all, at once."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clients.stands import POLICY, Stand, build_stand
from tests.conftest import bindings_path
from tests.issuers.fixtures import IssuerProcess
from tests.proc_files import descendants, open_names
from tests.processes.homes import Home
from tests.processes.package_registry import PackageRegistry, running_packages

pytestmark = pytest.mark.slow

CONNECTIONS_MAX = 200
FILES = (
    "npm/left-pad/-/left-pad-1.0.0.tgz",
    "npm/left-pad/-/left-pad-1.1.0.tgz",
)


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageRegistry]:
    with running_packages() as registry:
        yield registry


@pytest.fixture(scope="module")
def stand(quiet_home: Home, packages: PackageRegistry) -> Iterator[Stand]:
    """A proxy of two processes."""
    quiet_home.settings["workers"] = "2"
    issuer = IssuerProcess()
    try:
        yield build_stand(quiet_home, packages, issuer)
    finally:
        issuer.stop()


class Connection:
    """A connection to one of the processes, which must stay open."""

    def __init__(self, stand: Stand, client: httpx2.Client) -> None:
        self._stand, self._client = stand, client
        answer = client.get("/healthz")
        self.port: int = answer.extensions["network_stream"].get_extra_info("client_addr")[1]
        self.process = _process_of(stand, self.port)

    def ask(self, path: str) -> httpx2.Response:
        """The answer of this process to a GET below the proxy."""
        answer = self._client.get(f"/proxy/acme/{path}")
        stream = answer.extensions["network_stream"]
        assert stream.get_extra_info("client_addr")[1] == self.port, "another connection"
        return answer


def _process_of(stand: Stand, port: int) -> int:
    """The process that has accepted the connection from this port, as Linux says."""
    ends = f"0100007F:{stand.server.port:04X}", f"0100007F:{port:04X}"
    connections = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = [fields[9] for fields in connections if (fields[1], fields[2]) == ends]
    parent = stand.server.process.pid
    for process in descendants(parent):
        if f"socket:[{inode}]" in open_names(process):
            return process
    raise AssertionError("the connection belongs to none of the processes")


@contextmanager
def connections(stand: Stand, secret: str) -> Iterator[list[Connection]]:
    """A connection to each of the two processes, with this credential."""
    headers = {"authorization": f"Bearer {secret}"}
    with ExitStack() as stack:
        by_process: dict[int, Connection] = {}
        for _ in range(CONNECTIONS_MAX):
            client = stack.enter_context(stand.server.client(headers=headers))
            connection = Connection(stand, client)
            by_process.setdefault(connection.process, connection)
            if len(by_process) == 2:
                break
        assert len(by_process) == 2, "one process accepted all connections"
        yield list(by_process.values())


def statuses(each: list[Connection], path: str) -> list[int]:
    """What each process answers."""
    return [connection.ask(path).status_code for connection in each]


def put_policy(stand: Stand, **changes: Any) -> None:
    """Put the stand's policy in force, with changes."""
    path = "/api/v1/admin/orgs/acme/policy"
    with stand.server.client() as operator:
        put = operator.put(path, headers={"if-match": "*"}, json=POLICY | changes)
    assert put.status_code == 200, put.text


def test_a_rule_blocks_a_cached_file_at_the_next_request_in_every_process(
    stand: Stand, packages: PackageRegistry
) -> None:
    allowed, path = FILES
    with connections(stand, stand.key().secret) as each:
        assert statuses(each, path) == statuses(each, allowed) == [200, 200]
        asked = list(packages.asked)
        for _ in range(3):
            rule = {"ecosystem": "npm", "package": "left-pad", "versions": "1.1.0", "id": "new"}
            put_policy(stand, deny=[*POLICY["deny"], rule])
            blocked = [connection.ask(path) for connection in each]
            assert [answer.status_code for answer in blocked] == [302, 302]
            assert all(a.headers["location"].endswith("/denied+by+rule+new") for a in blocked)
            documents = [connection.ask("npm/left-pad").json() for connection in each]
            assert [document["dist-tags"]["latest"] for document in documents] == ["1.0.0"] * 2

            put_policy(stand)
            assert statuses(each, path) == [200, 200]

    assert packages.asked == asked


def test_a_revoked_binding_names_no_install_in_any_process(stand: Stand) -> None:
    key = stand.key()
    with connections(stand, stand.install_token(key)) as each:
        assert statuses(each, FILES[0]) == [200, 200]
        with stand.server.client() as operator:
            revoked = operator.delete(bindings_path("acme", stand.binding))
            assert revoked.status_code == 200, revoked.text
        # Each answers first for one file, because the other's row is the same install.
        for connection, path in zip(each, FILES, strict=True):
            assert connection.ask(path).status_code == 200

    rows = [(row["version"], row["oidc_binding_id"]) for row in stand.rows(key)]
    assert rows == [("1.0.0", stand.binding), ("1.0.0", None), ("1.1.0", None)]
