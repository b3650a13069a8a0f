"""The PostgreSQL server that tests use."""

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from service.core.settings import REPOSITORY
from tests.budgets import only_full
from tests.polling import HANG_S
from tests.postgres import EMPTY, PostgresServer

pytestmark = pytest.mark.slow


def _tables(server: PostgresServer, url: str) -> int:
    with server.connect(make_url(url).database or "") as connection:
        count = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone()
    assert count is not None
    return int(count[0])


def test_a_database_has_the_schema_and_is_dropped_afterwards(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        assert _tables(postgres, url) > 20
        with postgres.database(EMPTY) as empty:
            assert _tables(postgres, empty) == 0
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        postgres.connect(make_url(url).database or "")


def test_a_server_stops_starts_and_pauses(own_postgres: PostgresServer) -> None:
    name = own_postgres.create_database(EMPTY)
    url = own_postgres.url(name)
    with own_postgres.connect(name) as connection:
        connection.execute("CREATE TABLE kept (a int)")
    own_postgres.stop(is_crash=True)
    with pytest.raises(psycopg.OperationalError, match="refused"):
        own_postgres.connect(name)
    own_postgres.start()
    assert (own_postgres.url(name), _tables(own_postgres, url)) == (url, 1)

    with own_postgres.connect(name) as connection:
        asked = connection.pgconn
        own_postgres.pause()
        asked.send_query(b"SELECT 1")
        time.sleep(0.05)
        asked.consume_input()
        assert asked.is_busy()
        own_postgres.resume()
        while asked.get_result() is not None:
            pass


@only_full
def test_a_server_ends_with_a_killed_test_process() -> None:
    script = (
        "import os, signal; from tests.postgres import PostgresServer\n"
        "server = PostgresServer(); server.start(); print(server._folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    folder = Path(killed.stdout.strip())
    lock = folder / "data" / "postmaster.pid"
    until = time.monotonic() + HANG_S
    while lock.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not lock.exists()
    PostgresServer().close()
    assert not folder.exists()
