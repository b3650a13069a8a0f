"""TLS to PostgreSQL: its certificate and its name are verified, by the driver and by pg_dump."""

from pathlib import Path

import pytest
from sqlalchemy import text

from service.core.errors import StoreUnavailable
from service.core.settings import InvalidSetting
from service.store.engine_factory import create_engines
from service.store.migrate import migrate
from service.store.postgres import dump as dumps
from service.store.postgres.dump import dump, exported_snapshot
from service.store.store import Store
from tests.conftest import SettableClock
from tests.nginx import Certificates, make_certificates
from tests.polling import HANG_S
from tests.postgres import EMPTY, PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Of 127.0.0.1, and not of localhost."""
    (folder := tmp_path / "server").mkdir()
    return make_certificates(folder, "db.example")


@pytest.fixture
def verified_url(own_postgres: PostgresServer, certificates: Certificates) -> str:
    """An empty database of a server with TLS, which the URL wants verified."""
    own_postgres.use_tls(certificates.certificate, certificates.key)
    return f"{own_postgres.url(own_postgres.create_database(EMPTY))}?ssl=verify-full"


async def test_a_verified_server_is_used_by_the_driver_and_by_pg_dump(
    verified_url: str,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    clock: SettableClock,
) -> None:
    monkeypatch.setenv("PGSSLROOTCERT", str(certificates.authority))
    engines = create_engines(verified_url, HANG_S)
    try:
        await migrate(engines)
        store = Store(engines, clock)
        async with store.read() as session:
            used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert await session.scalar(text(used)) is True
        async with exported_snapshot(store) as (_, snapshot):
            await dump(verified_url, snapshot, tmp_path / "dump")
        assert (tmp_path / "dump").stat().st_size > 0
    finally:
        await engines.dispose()


@pytest.mark.parametrize("fault", ["another authority", "another name", "no authority"])
async def test_a_server_that_proves_nothing_is_refused(
    fault: str,
    verified_url: str,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (other := tmp_path / "other").mkdir()
    authority = certificates.authority
    if fault == "another authority":
        authority = make_certificates(other, "db.example").authority
    elif fault == "no authority":
        authority = tmp_path / "missing"
    monkeypatch.setenv("PGSSLROOTCERT", str(authority))
    url = verified_url
    if fault == "another name":
        url = url.replace("127.0.0.1", "localhost")
    engines = create_engines(url, HANG_S)
    try:
        with pytest.raises((StoreUnavailable, InvalidSetting)):
            await migrate(engines)
    finally:
        await engines.dispose()
    with pytest.raises(dumps.ProgramFailed):
        await dump(url, "00000003-00000001-1", tmp_path / "dump")
