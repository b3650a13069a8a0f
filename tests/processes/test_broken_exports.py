"""An export that breaks off must not look whole, and the log must say that it broke off."""

import httpx2
import pytest

from service.store.organisations import get_org
from tests.budgets import budget, only_full, sample
from tests.other_programs import execute
from tests.processes.exports import DAYS, EXPORT_PATH, ROWS_A_DAY
from tests.processes.homes import Home, Server, all_entries, eventually

pytestmark = pytest.mark.slow

CUT = (httpx2.RemoteProtocolError, httpx2.ReadError)
"""What a client sees of a transfer that ended without its end."""


def oldest_segment(home: Home):
    """The file an export of everything reaches last."""

    async def find(services):
        async with services.store.read() as session:
            acme = await get_org(session, "acme")
        rows = await services.store.snapshot(acme.id)
        return min(rows.segments, key=lambda segment: segment.day).path(home.data_dir / "audit")

    return home.change(find)


def finished(server: Server) -> dict[str, object]:
    """The one audit_export_finished row's envelope, as soon as it is there."""
    with server.client() as client:
        rows = eventually(
            lambda: all_entries(client, event="audit_export_finished"), "audit_export_finished"
        )
        (begun,) = all_entries(client, event="audit_exported")
    (row,) = rows
    assert row["payload"]["export_id"] == begun["payload"]["export_id"]
    assert begun["payload"]["rows"] == DAYS * ROWS_A_DAY + 1  # acme's org_created
    return row["payload"]


def test_a_server_that_dies_midway_leaves_a_visibly_broken_file(long_home):
    """A client must not take half a log for the whole."""
    server = long_home.serve()
    with server.client() as client, client.stream("GET", EXPORT_PATH) as response:
        assert response.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in response.headers
        pieces = response.iter_raw()
        next(pieces)
        server.kill()
        with pytest.raises(CUT):
            list(pieces)
        export_id = response.headers["x-export-id"]
    assert state_of(long_home, export_id) == "running", "its process may yet be heard of"

    # What a minute of waiting would do.
    execute(long_home.data_dir, "UPDATE exports SET progress_at = progress_at - 60000000")
    assert state_of(long_home, export_id) == "broken"
    server = long_home.serve()
    end = finished(server)
    assert (end["export_id"], end["complete"], end["sha256"]) == (export_id, False, None)
    with server.client() as client:
        answer = client.get(f"/api/v1/admin/orgs/acme/exports/{export_id}").json()
    assert answer["state"] == "broken"
    assert answer["ended_at"] is not None


def state_of(home: Home, export_id: str) -> str:
    """What the command line says of the export, with no server there."""
    return home.ask("audit", "exports", "show", "--org", "acme", export_id)["state"]


@sample(1)
@pytest.mark.parametrize(
    ("form", "coding"),
    [
        ("json", "identity"),
        *(
            pytest.param(*case, marks=only_full)
            for case in [
                ("csv", "identity"),
                ("ndjson", "identity"),
                ("csv&compress=gzip", "identity"),
                ("ndjson", "gzip"),
            ]
        ),
        ("parquet", "identity"),
        ("json", "zstd"),
    ],
)
def test_an_export_that_fails_inside_is_cut_and_recorded(long_home, form, coding):
    server = long_home.serve()
    segment = oldest_segment(long_home)
    whole = segment.read_bytes()
    # Damaged before the request: the oldest day is read after the first piece of every form.
    third = len(whole) // 3
    segment.write_bytes(whole[:third] + b"\xff" * 100_000 + whole[third + 100_000 :])
    path, wanted = EXPORT_PATH.replace("json", form), {"accept-encoding": coding}
    with server.client() as client, client.stream("GET", path, headers=wanted) as response:
        assert response.status_code == 200
        assert response.headers.get("content-encoding", "identity") == coding
        pieces = response.iter_raw()
        next(pieces)
        with pytest.raises(CUT):
            list(pieces)
    segment.write_bytes(whole)  # or the log could not be asked for the row below

    end = finished(server)
    assert end["complete"] is False
    assert end["sha256"] is None
    assert end["rows"] < int(response.headers["x-row-count"])
    with server.client() as client:
        assert client.get("/healthz").status_code == 200


def test_a_client_who_leaves_early_is_recorded(long_home):
    server = long_home.serve()
    with server.client() as client, client.stream("GET", EXPORT_PATH) as response:
        next(response.iter_raw())

    end = finished(server)
    assert end["complete"] is False
    assert 0 < end["rows"] < int(response.headers["x-row-count"])


@only_full
def test_a_reader_who_stalls_is_cut_off_at_the_time_limit(long_home):
    """Files are kept for as long as the longest export."""
    server = long_home.serve(export_max_s=str(budget(3, 10)))
    with server.client() as client, client.stream("GET", EXPORT_PATH) as response:
        pieces = response.iter_raw()
        next(pieces)
        assert finished(server)["complete"] is False
        with pytest.raises(CUT):
            list(pieces)
