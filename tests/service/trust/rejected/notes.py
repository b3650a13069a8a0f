"""What tests of the verifier's memory share: a database of two, and rejections to note."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import select

from service.ci.verifier.codes import FailureCode
from service.ci.verifier.rejections import TokenRejection
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.store.engine_factory import create_engines
from service.store.store import Store
from service.store.tables import RejectedSubject
from service.trust.rejected.subjects import RejectedSubjects
from tests.conftest import ISSUER, START, SettableClock, World
from tests.other_programs import write_lock


@contextlib.contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """Another process holds the database: no write gets through."""
    with write_lock(settings.data_dir):
        yield


@asynccontextmanager
async def another_store(settings: Settings) -> AsyncIterator[Store]:
    """The same database, as another worker has it open."""
    engines = create_engines(settings.database, 10.0)
    yield Store(engines, SettableClock())
    await engines.dispose()


def rejection(tenant_id: str, **changes: Any) -> TokenRejection:
    """A verified token that no binding was there for, with `changes`."""
    values: dict[str, Any] = {
        "tenant_id": tenant_id,
        "is_verified": True,
        "code": FailureCode.UNBOUND_OIDC_SUBJECT,
        "detail": None,
        "issuer": ISSUER,
        "sub": "repo:acme/payments:ref:refs/heads/main",
        "repository_id": "123456789",
        "event_name": "push",
        "owner": "acme",
        "project_id": None,
        "request_id": "req_1",
        "at": START,
    }
    return TokenRejection(**values | changes)


async def remember(world: World, *rejections: TokenRejection) -> None:
    """Note `rejections` in a process of its own, and write them."""
    notes = RejectedSubjects(world.services.store, Metrics())
    for one in rejections:
        notes.record(one)
    await notes.flush()


async def remembered(world: World, tenant_id: str | None = None) -> list[RejectedSubject]:
    """The organisation's rows (acme's, unless said otherwise), newest first."""
    async with world.services.store.read() as session:
        rows = await session.scalars(
            select(RejectedSubject)
            .where(RejectedSubject.tenant_id == (tenant_id or world.acme.id))
            .order_by(RejectedSubject.last_at.desc(), RejectedSubject.digest)
        )
        return list(rows)
