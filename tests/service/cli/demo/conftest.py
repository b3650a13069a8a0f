"""What the demo's tests share: a service in which it was seeded, and its rows as exported."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from quart.typing import TestClientProtocol

from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION, Services
from service.cli.demo.seed import DEMO_ORG, seed_demo
from tests.conftest import ADMIN_TOKEN, START, SettableClock, bindings_path, settings_over

INSTALLS = {"install_allowed", "oss_first_party", "blocklist_hit", "cooldown_active"}
"""The events of an install."""


class Row(msgspec.Struct, frozen=True, rename={"package_name": "packageName"}):
    """What the tests look at of one exported row."""

    id: str
    created_at: datetime
    received_at: datetime
    event: str
    package_name: str | None
    decision: str | None
    decision_reason: str
    verdict_source: str
    actor: str
    actor_source: str
    subject: str | None
    oidc_binding_id: str | None
    request_id: str | None
    source_ip: str | None
    payload: dict[str, Any]
    ecosystem: str | None
    repository_id: str | None
    run_id: str | None
    token_id: str | None
    file_name: str | None
    file_sha256: str | None
    client: str | None


@dataclass
class Demo:
    """A service that holds the demo, as of START."""

    client: TestClientProtocol
    services: Services
    progress: list[tuple[int, int]]

    async def answer(self, path: str, **query: Any) -> Any:
        """What a GET answers with, under the admin token; the API's errors fail the test."""
        response = await self.client.get(
            path, headers={"x-service-admin-token": ADMIN_TOKEN}, query_string=query
        )
        assert response.status_code == 200, await response.get_data(as_text=True)
        return response

    async def audit(self, **query: Any) -> list[dict[str, Any]]:
        """One page of up to 1,000 rows, newest first."""
        path = f"/api/v1/admin/orgs/{DEMO_ORG}/audit"
        response = await self.answer(path, **{"limit": 1000, **query})
        return (await response.get_json())["entries"]

    async def bindings(self) -> list[dict[str, Any]]:
        """All bindings, newest first."""
        return (await (await self.answer(bindings_path(DEMO_ORG))).get_json())["bindings"]

    async def export(self, **query: Any) -> list[Row]:
        """All rows of a query."""
        path = f"/admin/ui/orgs/{DEMO_ORG}/audit/export"
        response = await self.answer(path, format="json", **query)
        return msgspec.json.decode(await response.get_data(), type=list[Row])


@asynccontextmanager
async def seeded_demo(folder: Path, now: datetime = START) -> AsyncIterator[Demo]:
    # Without what would take all its rows in meanwhile: a stop waits for that.
    ready = await prepare(settings_over(folder))
    app = create_app(ready, SettableClock(now), jobs=seal_jobs)
    services: Services = app.extensions[EXTENSION]
    progress: list[tuple[int, int]] = []
    assert await seed_demo(services, now, lambda done, rows: progress.append((done, rows)))
    async with app.test_app():
        yield Demo(app.test_client(), services, progress)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    """One demo for all tests, which change nothing in it but for the rows of their exports."""
    async with seeded_demo(tmp_path_factory.mktemp("demo")) as made:
        yield made


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def rows(demo: Demo) -> list[Row]:
    """Every row of the demo, newest first."""
    return await demo.export()


@pytest.fixture(scope="package")
def counts(rows: list[Row]) -> Counter[str]:
    """How many rows each event has."""
    return Counter(row.event for row in rows)
