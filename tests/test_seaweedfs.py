"""The S3 server of tests leaves nothing behind, and can be paused."""

from pathlib import Path

import pytest

from analytics.model.errors import StoreUnreachable
from analytics.storage.bucket_place import parse_place
from analytics.storage.objects import Objects
from tests.seaweedfs import BUCKET, SOCKETS, SeaweedFS, running_seaweedfs

pytestmark = pytest.mark.slow


def sockets(server: SeaweedFS) -> list[Path]:
    """Those of the server's ports."""
    return [path for port in server.ports for path in SOCKETS.glob(f"*-{port}.sock")]


def test_no_socket_is_left(tmp_path: Path) -> None:
    """Thousands were, in /tmp: the server takes no other place, and does not remove them."""
    with running_seaweedfs(tmp_path) as server:
        assert sockets(server)
        server.kill()
        assert not sockets(server)
        server.start()
        server.stop()
        assert not sockets(server)


def test_a_paused_server_does_not_answer_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_seaweedfs(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        objects = Objects(parse_place(f"s3://{BUCKET}/here"), server.endpoint, wait_s=1.0)
        objects.write("a", b"1")
        server.pause()
        with pytest.raises(StoreUnreachable):
            objects.read("a")
        server.resume()
        patient = Objects(parse_place(f"s3://{BUCKET}/here"), server.endpoint, wait_s=60.0)
        assert patient.read("a") == b"1"
