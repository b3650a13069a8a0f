"""What is closed at the end, whatever fails on the way."""

import sqlite3
from contextlib import closing

from msgspec import structs
from structlog.testing import capture_logs

from service.clock import utc_now
from service.prepare import prepare
from service.services import build_services
from service.settings import Settings


async def test_a_database_that_is_held_up_keeps_nothing_open(settings: Settings):
    """The last counts are lost, and said to be; everything is closed all the same."""
    impatient = await prepare(structs.replace(settings, database_wait_s=0.1))
    services = build_services(impatient, utc_now)
    services.binding_use.note("obind_1", utc_now())
    with closing(sqlite3.connect(impatient.data_dir / "countersign.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with capture_logs() as logs:
            await services.close()
    assert [line["event"] for line in logs] == ["last_flush_failed"]
    assert services.http.is_closed
