"""What Prometheus sees: how much is stored of whom, and whether the background work gets done."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec
import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from service.app.application import create_app
from service.app.background_jobs import maintenance, sealing
from service.app.scrapes import Scrapes
from service.audit.maintenance import BackgroundJob, Maintenance
from service.core.metrics import Metrics
from service.core.settings import REPOSITORY, Settings
from service.store.journal import append
from service.store.lease import LeaseTaken
from tests.analytics.samples import sample_row
from tests.conftest import SCRAPER, START, SettableClock, World, running_world

KEYS = "/api/v1/admin/orgs/acme/api-keys"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """Nothing runs in the background: what seals here is the test."""
    async with running_world(settings, clock, has_sealer=False) as quiet:
        yield quiet


def samples(exposition: str) -> Samples:
    """Every value by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


async def scrape(world: World) -> Samples:
    response = await world.client.get("/metrics", headers=SCRAPER)
    assert response.status_code == 200
    return samples(await response.get_data(as_text=True))


async def test_what_is_stored_is_shown_for_each_tenant_and_in_all(world):
    """The port is open, and a slug would say who the customers are."""
    await world.create()
    found = await scrape(world)

    acme, other = (("tenant", world.acme.id),), (("tenant", world.other.id),)
    each = [found[("countersign_tenant_journal_rows", label)] for label in (acme, other)]
    assert min(each) > 0
    assert found[("countersign_journal_rows", ())] == sum(each)
    assert found[("countersign_tenant_dates", acme)] == 1
    assert found[("countersign_tenant_segments", acme)] == 0
    assert ("countersign_tenant_oldest_sealed_timestamp_seconds", acme) not in found
    assert not [
        label for name, labels in found for _, label in labels if label in {"acme", "other"}
    ]


async def test_sealed_rows_are_shown(world):
    await world.services.sealer.seal_due(everything=True)
    found = await scrape(world)

    acme = (("tenant", world.acme.id),)
    (path,) = world.services.settings.audit_dir.glob(f"tenant={world.acme.id}/*/*.parquet")
    assert found[("countersign_tenant_segments", acme)] == 1
    assert found[("countersign_tenant_segment_bytes", acme)] == path.stat().st_size
    assert found[("countersign_tenant_segment_rows", acme)] > 0
    oldest = found[("countersign_tenant_oldest_sealed_timestamp_seconds", acme)]
    assert oldest == START.timestamp()


async def test_keys_that_end_soon_are_counted_for_each_tenant(world):
    ids = []
    for name, expires in (("rotated", "6d"), ("revoked", "6d"), ("soon", "7d"), ("late", "8d")):
        asked = {"name": name, "scopes": ["audit:r"], "expires": expires}
        answer = await world.client.post(KEYS, headers=world.admin, json=asked)
        ids.append((await answer.get_json())["id"])
    name, acme = "countersign_tenant_api_keys_expiring", (("tenant", world.acme.id),)

    assert (await scrape(world))[name, acme] == 3
    await world.client.post(f"{KEYS}/{ids[0]}/rotate", headers=world.admin, json={"overlap": "1h"})
    await world.client.delete(f"{KEYS}/{ids[1]}", headers=world.admin)
    assert (await scrape(world))[
        name, acme
    ] == 2  # one of them is the successor, which lives as long
    world.clock.advance(seconds=timedelta(days=7).total_seconds())
    assert (await scrape(world))[name, acme] == 1  # the late one
    world.clock.advance(seconds=timedelta(days=1).total_seconds())
    assert (name, acme) not in await scrape(world)


async def run_jobs(metrics: Metrics, clock: SettableClock, *jobs: BackgroundJob) -> None:
    """One round, and perhaps another."""
    stop = asyncio.Event()
    rounds = asyncio.create_task(Maintenance(jobs, 0.001, clock, metrics).run(stop))
    await asyncio.sleep(0.02)
    stop.set()
    await rounds


async def fail() -> None:
    raise RuntimeError("as expected")


async def lease_taken() -> None:
    raise LeaseTaken


async def find_nothing() -> int:
    return 0


async def test_a_job_shows_when_it_last_succeeded_and_how_often_it_failed(clock):
    metrics = Metrics()
    at = "countersign_maintenance_last_success_timestamp_seconds"
    failures = "countersign_maintenance_failures_total"
    jobs = [
        BackgroundJob("idle", 3600.0, find_nothing),
        BackgroundJob("broken", 0.001, fail),
        BackgroundJob("waiting", 0.001, lease_taken),
    ]
    clock.now = START + timedelta(seconds=5)

    await run_jobs(metrics, clock, *jobs)

    found = samples(metrics.exposition().decode())
    assert found[(at, (("task", "idle"),))] == clock.now.timestamp()
    assert (at, (("task", "broken"),)) not in found
    assert (at, (("task", "waiting"),)) not in found
    assert found[(failures, (("task", "broken"),))] >= 1
    assert found[(failures, (("task", "idle"),))] == 0
    assert found[(failures, (("task", "waiting"),))] == 0
    every = "countersign_maintenance_interval_seconds"
    assert {found[(every, (("task", job.name),))] for job in jobs} == {3600.0, 0.001}


async def test_every_job_of_a_service_shows_from_the_start(world):
    """An alert on a series that is not there yet would never fire."""
    maintenance(world.services)
    sealing(world.services)
    failures = "countersign_maintenance_failures_total"
    jobs = {labels[0][1] for name, labels in await scrape(world) if name == failures}

    assert {"seal", "compact", "unlink_retired", "clear_orphans"} <= jobs


async def test_every_metric_is_documented_and_no_other(world):
    maintenance(world.services)
    await world.services.sealer.seal_due(everything=True)
    await world.client.get("/healthz")
    exposed = (
        await (await world.client.get("/metrics", headers=SCRAPER)).get_data(as_text=True)
    ).splitlines()
    names = {line.split()[2] for line in exposed if line.startswith("# TYPE ")}
    page = (REPOSITORY / "docs" / "operations.md").read_text()

    assert set(re.findall(r"\b(?:countersign|process)_[a-z_]+", page)) == {
        name for name in names if not name.endswith("_created")
    }


async def test_rows_of_a_round_reach_the_metrics(world):
    """Through the endpoint, as they are at the scrape and not before."""
    before = (await scrape(world))[("countersign_journal_rows", ())]
    async with world.services.store.write() as work:
        await append(work.session, world.acme.id, [sample_row(START)] * 7, now=work.now)

    assert (await scrape(world))[("countersign_journal_rows", ())] == before + 7


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Basic scrape-me", 401),
        ("Bearer scrape-me", 200),
        ("bearer scrape-me", 200),
        ("Bearer ", 401),
    ],
)
async def test_a_token_of_its_own_keeps_others_from_the_metrics(
    settings: Settings, clock: SettableClock, authorization: str | None, status: int
):
    """The port may be one that more than Prometheus can reach."""
    guarded = msgspec.structs.replace(settings, metrics_token="scrape-me")
    async with running_world(guarded, clock, has_sealer=False) as world:
        headers = {} if authorization is None else {"authorization": authorization}
        assert (await world.client.get("/metrics", headers=headers)).status_code == status


async def test_without_a_token_the_metrics_are_closed_to_all(world: World):
    """An empty token must not match an empty header."""
    app = create_app(msgspec.structs.replace(world.services.settings, metrics_token=""))

    async with app.test_app() as running:
        for headers in ({}, {"authorization": "Bearer "}):
            answer = await running.test_client().get("/metrics", headers=headers)
            assert answer.status_code == 401


async def test_the_operator_can_open_the_metrics(settings: Settings, clock: SettableClock):
    opened = msgspec.structs.replace(settings, metrics_token="", metrics_open=True)
    async with running_world(opened, clock, has_sealer=False) as world:
        assert (await world.client.get("/metrics")).status_code == 200


async def test_a_page_is_made_once_for_all_who_ask_within_its_age(world):
    """It takes 39 ms with many routes: in a thread, once for several who ask.

    So do the gauges of each organisation.
    """
    services = world.services
    threads, shown = [], []

    class Watched(Metrics):
        def show(self, families: Sequence[Metric]) -> None:
            shown.append(threading.current_thread())
            super().show(families)

        def exposition(self) -> bytes:
            threads.append(threading.current_thread())
            return super().exposition()

    scrapes = Scrapes(services.store, Watched(), services.clock, max_age_s=3600.0)
    pages = await asyncio.gather(*(scrapes.get() for _ in range(5)))

    assert len(set(pages)) == 1
    (thread,) = threads
    assert thread is not threading.main_thread()
    assert shown == [thread]

    always = Scrapes(services.store, Watched(), services.clock, max_age_s=0.0)
    await always.get()
    await always.get()
    assert len(threads) == 3
