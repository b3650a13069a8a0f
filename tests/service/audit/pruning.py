"""What tests of pruning share: organisations with a past, and ways to look at what is left."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from analytics.model.instants import midnight, utc_day
from service.app.composition import Services
from service.audit.pruner import Pruned
from service.store.organisations import get_org
from service.store.store import UnitOfWork
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.meanwhile import by_another_worker

EVENT = "blocklist_hit"
STEP = timedelta(microseconds=1)
DAY = timedelta(days=1)
LONG_AGO = START - 20 * DAY
"""Past the retention of tier free, within that of every other."""


async def change(services: Services, what: Callable[[UnitOfWork, Any], Awaitable[None]]) -> None:
    """`what` with acme, in one transaction."""
    async with services.store.write() as work:
        await what(work, await get_org(work.session, "acme"))


async def always_on(audit: AuditWorld, tier: str) -> None:
    """Put acme on `tier` as if it had never been on another."""

    async def set_it(_: UnitOfWork, acme: Any) -> None:
        acme.tier = tier

    await change(audit.services, set_it)


async def prune(audit: AuditWorld, **options: Any) -> list[Pruned]:
    """A run by the operator; its clock is accepted unless `options` say otherwise."""
    return await audit.services.pruner.prune(BY_OPERATOR, **({"is_clock_accepted": True} | options))


async def left(audit: AuditWorld) -> list[str]:
    """The ids of acme's installs that are still stored, whatever its tier shows of them."""
    async with audit.services.store.read() as session:
        tier = (await get_org(session, "acme")).tier
    await always_on(audit, "enterprise")
    ids = [entry["id"] for entry in await audit.pages(event=EVENT)]
    await always_on(audit, tier)
    return ids


async def pruned_rows(audit: AuditWorld) -> list[dict[str, Any]]:
    return await audit.pages(event="audit_pruned")


async def add_past(audit: AuditWorld, at: datetime = LONG_AGO, days: int = 3) -> None:
    """Old days: the first sealed, the second half and half, the others in the journal."""
    await audit.accept([sample_row(at, version=f"sealed {n}") for n in range(4)])
    await audit.accept([sample_row(at + DAY, version=f"sealed {n}") for n in range(2)])
    await audit.seal()
    for day in range(1, days):
        await audit.accept([sample_row(at + day * DAY, version=f"journal {n}") for n in range(3)])


def last_instant(at: datetime) -> datetime:
    """The last microsecond of the day before that of `at`."""
    return midnight(utc_day(at)) - STEP


def elsewhere(
    audit: AuditWorld, what: Callable[[UnitOfWork, Any], Awaitable[None]]
) -> Callable[[], None]:
    """`change`, by another worker and to its end."""
    return by_another_worker(audit, lambda worker: change(worker, what))
