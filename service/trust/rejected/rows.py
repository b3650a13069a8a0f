"""Queries on rejected subjects. Nothing in this module commits."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from service.store.batching import execute_many, scalars_of
from service.store.tables import RejectedSubject
from service.store.tables.base import Instant
from service.store.transaction import Transaction


@dataclass(slots=True, kw_only=True)
class RejectionRecord:
    """Equal rejections, counted together; the columns of their row."""

    tenant_id: str
    is_verified: bool
    code: str
    detail: str | None
    issuer: str | None
    sub: str | None
    repository_id: str | None
    event_name: str | None
    owner: str | None
    project_id: str | None
    count: int
    first_at: datetime
    last_at: datetime
    last_request_id: str

    @property
    def identity(self) -> tuple[object, ...]:
        """The fields that are equal in equal rejections of an organisation."""
        return (
            self.is_verified,
            self.code,
            self.detail,
            self.issuer,
            self.sub,
            self.repository_id,
            self.event_name,
            self.project_id,
        )

    @property
    def digest(self) -> str:
        """The identity as a key of the table; some databases cannot index texts this long."""
        return hashlib.sha256(json.dumps(self.identity).encode()).hexdigest()

    def add(self, other: "RejectionRecord") -> None:
        """Add the counts and times of `other`, which has the same identity."""
        self.count += other.count
        self.first_at = min(self.first_at, other.first_at)
        if other.last_at >= self.last_at:
            self.last_at, self.last_request_id = other.last_at, other.last_request_id
            self.owner = other.owner


async def write_records(
    session: AsyncSession, tenant_id: str, records: Sequence[RejectionRecord]
) -> None:
    """Add `records`, which differ in identity, to the organisation's rows.

    No other transaction can insert in between: this one started with the write lock.
    """
    by_digest = {record.digest: record for record in records}
    theirs = select(RejectedSubject.digest).where(RejectedSubject.tenant_id == tenant_id)
    known = {
        digest
        async for digest in scalars_of(session, theirs, RejectedSubject.digest, list(by_digest))
    }
    new = [{**asdict(entry), "digest": key} for key, entry in by_digest.items() if key not in known]
    again = [_again(record) for key, record in by_digest.items() if key in known]
    if new:
        await execute_many(session, insert(RejectedSubject), new)
    if again:
        await execute_many(session, _COUNT_UP, again)


async def keep_newest(session: AsyncSession, tenant_id: str, entries_max: int) -> None:
    """Delete the organisation's rows beyond `entries_max`.

    The oldest unverified ones are deleted first, then the oldest verified ones.
    """
    beyond = (
        select(RejectedSubject.digest)
        .where(RejectedSubject.tenant_id == tenant_id)
        # Verified ones first, so that forged rejections cannot displace them.
        .order_by(RejectedSubject.is_verified.desc(), RejectedSubject.last_at.desc())
        .offset(entries_max)
    )
    await session.execute(
        delete(RejectedSubject).where(
            RejectedSubject.tenant_id == tenant_id, RejectedSubject.digest.in_(beyond)
        ),
        execution_options={"synchronize_session": False},
    )


def delete_before(transaction: Transaction, instant: datetime) -> None:
    """Delete the rows of all organisations last seen before `instant`."""
    transaction.run(_DELETE_BEFORE, [{"before": instant}])


def rejected_since(
    tenant_id: str, since: datetime, *, is_verified: bool | None, code: str | None
) -> Select[RejectedSubject]:
    """The organisation's rows last seen at `since` or later; None matches all."""
    query = select(RejectedSubject).where(_lately(tenant_id, since))
    if is_verified is not None:
        query = query.where(RejectedSubject.is_verified == is_verified)
    return query if code is None else query.where(RejectedSubject.code == code)


class RejectedCounts(NamedTuple):
    """How many subjects were rejected in a time; and how many first in it, and as long before it.

    `first_before` is None if there were so many that some are not kept.
    """

    rejected: int
    first: int
    first_before: int | None


async def count_rejected(
    session: AsyncSession, tenant_id: str, since: datetime, before: datetime, kept_max: int
) -> RejectedCounts:
    """Those of the organisation from `since` on, and first ones from `before` until then."""
    first_at = RejectedSubject.first_at
    counts = select(
        func.count(),
        func.count().filter(RejectedSubject.last_at >= since),
        func.count().filter(first_at >= since),
        func.count().filter(first_at >= before, first_at < since),
    ).where(RejectedSubject.tenant_id == tenant_id)
    kept, rejected, first, first_before = (await session.execute(counts)).one()
    return RejectedCounts(rejected, first, first_before if kept < kept_max else None)


async def find_rejected(
    session: AsyncSession, tenant_id: str, digest: str, *, since: datetime
) -> RejectedSubject | None:
    """The organisation's row with this digest, if it was last seen at `since` or later."""
    return await session.scalar(
        select(RejectedSubject).where(_lately(tenant_id, since), RejectedSubject.digest == digest)
    )


def _lately(tenant_id: str, since: datetime) -> ColumnElement[bool]:
    """Condition: rows of the organisation last seen at `since` or later."""
    return and_(RejectedSubject.tenant_id == tenant_id, RejectedSubject.last_at >= since)


_TABLE: Final = cast("Table", RejectedSubject.__table__)
_DELETE_BEFORE: Final = delete(_TABLE).where(_TABLE.c.last_at < bindparam("before"))
_LAST_AT: Final = bindparam("new_last_at", type_=Instant())
_FIRST_AT: Final = bindparam("new_first_at", type_=Instant())
_IS_LATEST: Final = RejectedSubject.last_at <= _LAST_AT

# Incremented in the database, because other processes count too.
_COUNT_UP: Final = (
    update(RejectedSubject)
    .where(
        RejectedSubject.tenant_id == bindparam("new_tenant_id"),
        RejectedSubject.digest == bindparam("new_digest"),
    )
    .values(
        count=RejectedSubject.count + bindparam("new_count"),
        first_at=case(
            (RejectedSubject.first_at > _FIRST_AT, _FIRST_AT), else_=RejectedSubject.first_at
        ),
        last_at=case((_IS_LATEST, _LAST_AT), else_=RejectedSubject.last_at),
        last_request_id=case(
            (_IS_LATEST, bindparam("new_request_id")), else_=RejectedSubject.last_request_id
        ),
        owner=case((_IS_LATEST, bindparam("new_owner")), else_=RejectedSubject.owner),
    )
)


def _again(record: RejectionRecord) -> dict[str, Any]:
    return {
        "new_tenant_id": record.tenant_id,
        "new_digest": record.digest,
        "new_count": record.count,
        "new_first_at": record.first_at,
        "new_last_at": record.last_at,
        "new_request_id": record.last_request_id,
        "new_owner": record.owner,
    }
