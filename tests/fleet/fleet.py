"""Starts and stops a fleet: PostgreSQL, SeaweedFS, nodes of Countersign, and a balancer."""

import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.balancer import Balancer
from tests.postgres import PostgresServer
from tests.processes.homes import Home, Server, free_port
from tests.seaweedfs import BUCKET, SeaweedFS, running_seaweedfs

NODES = 3


@dataclass
class Node:
    """One machine of the fleet: its data dir, and the process that serves it, if one runs.

    `home.data_dir` holds nothing that another node needs.
    """

    home: Home
    port: int
    server: Server | None = None

    def start(self, **changes: str) -> Server:
        return self.begin(**changes).wait_ready()

    def begin(self, **changes: str) -> Server:
        self.server = self.home.start(port=str(self.port), **changes)
        return self.server

    @contextmanager
    def paused(self) -> Iterator[None]:
        """In the block the process is suspended, with what it holds."""
        assert self.server is not None
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.process.send_signal(signal.SIGCONT)

    @property
    def url(self) -> str:
        """Where it is reached without the balancer."""
        return f"http://127.0.0.1:{self.port}"

    def check_runs(self) -> None:
        """Fail if its process has ended by itself."""
        assert self.server is not None
        code = self.server.process.poll()
        assert code is None, f"the node is gone, with exit code {code}:\n{self.server.logged()}"

    def kill(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server = None

    def stop(self) -> int:
        """Ask it to stop, and wait for that; its exit code."""
        assert self.server is not None
        server, self.server = self.server, None
        return server.stop()


@dataclass
class Fleet:
    """A running fleet. What serves it can be stopped and started one by one."""

    postgres: PostgresServer
    database: str
    """Its name in `postgres`."""
    objects: SeaweedFS
    nodes: list[Node]
    balancer: Balancer

    @property
    def url(self) -> str:
        """Where the fleet is reached, at a node that is up."""
        return self.balancer.url

    def run(self, *arguments: str) -> str:
        """What `countersign` prints on the first node; the command has to succeed."""
        done = self.nodes[0].home.run(*arguments)
        assert done.code == 0, done.err
        return done.out


@dataclass
class FleetHome(Home):
    """The data dir of a node, with the credentials of the S3 server.

    The clock of its machine is off by `clock_off_s` seconds.
    """

    credentials: Mapping[str, str] = field(default_factory=dict)
    clock_off_s: float = 0.0

    def __post_init__(self) -> None:
        if self.clock_off_s:
            self.server_module = "tests.fleet.skewed_node"

    def environment(self, **changes: str) -> dict[str, str]:
        """See `Home.environment`."""
        own = {"NODE_CLOCK_OFF_S": str(self.clock_off_s)}
        return {**super().environment(**changes), **self.credentials, **own}


@contextmanager
def running_fleet(
    folder: Path, clocks_off_s: Sequence[float] = (0.0,) * NODES, **settings: str
) -> Iterator[Fleet]:
    """A fleet below the empty `folder`, all nodes ready; it ends with the block.

    It has a node for each of `clocks_off_s`. `settings` are those of each node, by their names.
    """
    with ExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.close)
        postgres.start()
        database = postgres.create_database()
        objects_folder = folder / "objects"
        objects_folder.mkdir()
        objects = stack.enter_context(running_seaweedfs(objects_folder))
        shared = {
            "database_url": postgres.url(database),
            "segments_url": f"s3://{BUCKET}/lake",
            "segments_endpoint": objects.endpoint,
            "secret_key": secrets.token_hex(24),
            **settings,
        }
        ports = [free_port() for _ in clocks_off_s]
        balancer = Balancer(ports)
        stack.callback(balancer.close)
        shared.setdefault("base_url", balancer.url)
        fleet = Fleet(postgres, database, objects, [], balancer)
        for number, (port, off_s) in enumerate(zip(ports, clocks_off_s, strict=True)):
            home = FleetHome(
                folder / f"node-{number}",
                shared,
                credentials=objects.environment,
                clock_off_s=off_s,
            )
            home.folder.mkdir()
            node = Node(home, port)
            fleet.nodes.append(node)
            stack.callback(node.kill)
        fleet.run("init")
        for node in fleet.nodes:
            node.start()
        yield fleet
