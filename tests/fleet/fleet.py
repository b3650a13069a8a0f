"""Starts and stops a fleet: PostgreSQL, SeaweedFS, nodes of Countersign, and a balancer."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.balancer import Balancer
from tests.postgres import PostgresServer
from tests.processes.homes import Home, Server, free_port
from tests.seaweedfs import BUCKET, SeaweedFS, running_seaweedfs

NODES = 3
DATABASE = "countersign"


@dataclass
class Node:
    """One machine of the fleet: its data dir, and the process that serves it, if one runs.

    `home.data_dir` holds nothing that another node needs.
    """

    home: Home
    port: int
    server: Server | None = None

    def start(self, **changes: str) -> Server:
        """Serve; returns once the node is ready."""
        self.server = self.home.serve(port=str(self.port), **changes)
        return self.server

    def kill(self) -> None:
        """End it as a power cut would; its data dir stays."""
        if self.server is not None:
            self.server.kill()
            self.server = None

    def stop(self) -> None:
        """Ask it to stop, and wait for that."""
        if self.server is not None:
            self.server.stop()
            self.server = None


@dataclass
class Fleet:
    """A running fleet. What serves it can be stopped and started one by one."""

    postgres: PostgresServer
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
    """The data dir of a node, with the credentials of the S3 server."""

    credentials: Mapping[str, str] = field(default_factory=dict)

    def environment(self, **changes: str) -> dict[str, str]:
        """See `Home.environment`."""
        return {**super().environment(**changes), **self.credentials}


@contextmanager
def running_fleet(folder: Path, nodes: int = NODES, **settings: str) -> Iterator[Fleet]:
    """A fleet with `nodes` below the empty `folder`, all ready; it ends with the block.

    `settings` are those of each node, by their names.
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
        ports = [free_port() for _ in range(nodes)]
        balancer = Balancer(ports)
        stack.callback(balancer.close)
        shared.setdefault("base_url", balancer.url)
        fleet = Fleet(postgres, objects, [], balancer)
        for number, port in enumerate(ports):
            home = FleetHome(folder / f"node-{number}", shared, credentials=objects.environment)
            home.folder.mkdir()
            node = Node(home, port)
            fleet.nodes.append(node)
            stack.callback(node.kill)
        fleet.run("init")
        for node in fleet.nodes:
            node.start()
        yield fleet
