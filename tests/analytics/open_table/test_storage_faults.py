"""What goes wrong with a bucket is told by its code: answers can repeat the access key."""

import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from analytics.open_table.storage_faults import storage_faults
from analytics.open_table.table_format import FormatName, SnapshotChange, TableFormat
from service.audit.open_table.places import TableKey, s3_places

KEY = "AKIAIOSFODNN7EXAMPLE"
ANSWER = f"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The key {KEY} is not in our records.</Message>
<AWSAccessKeyId>{KEY}</AWSAccessKeyId></Error>""".encode()


class Refusing(BaseHTTPRequestHandler):
    """Refuses every request as AWS does, and repeats the key."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def refuse(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(403)
        self.send_header("content-type", "application/xml")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(ANSWER)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = refuse  # noqa: N815 - names of the base

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def begin(table: TableFormat) -> None:
    table.write(None, SnapshotChange([], frozenset(), 0, datetime(2026, 3, 10, tzinfo=UTC)))


def read(table: TableFormat) -> None:
    is_iceberg = table.name is FormatName.ICEBERG
    table.read(f"{table.location}/versions/1.metadata.json" if is_iceberg else "1")


@pytest.mark.parametrize("name", FormatName)
@pytest.mark.parametrize("work", [begin, read])
def test_an_answer_of_the_server_is_not_repeated(endpoint, name, work):
    table = s3_places("s3://lake/prefix", endpoint, 4.0).table(TableKey(name))

    with pytest.raises(OSError, match="the storage of s3://lake/prefix") as failed:
        work(table)

    shown = "".join(traceback.format_exception(failed.value))
    assert KEY not in shown
    assert "our records" not in shown


def test_the_code_of_an_answer_is_named():
    with (
        pytest.raises(OSError, match=r"s3://lake failed: InvalidAccessKeyId$"),
        storage_faults("s3://lake"),
    ):
        raise OSError(ANSWER.decode())


def test_a_fault_of_this_machines_disk_stays_as_it_is(tmp_path):
    """Its number tells a full disk from a missing file."""
    with pytest.raises(FileNotFoundError), storage_faults("file:///lake"):
        (tmp_path / "missing").read_bytes()
