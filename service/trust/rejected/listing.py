"""Lists an organisation's rejected subjects with their current resolution."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from service.ci.issuers.issuers import Issuers
from service.ci.verifier.codes import FailureCode
from service.core.errors import RejectedNotFound
from service.store.store import Store
from service.store.tables import RejectedSubject
from service.trust.explain.proposals import Proposal
from service.trust.rejected.proposals import Resolution, list_resolutions
from service.trust.rejected.rows import find_rejected, list_rejected
from service.trust.rejected.subjects import ENTRIES_PER_ORG_MAX, KEPT_FOR

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = ENTRIES_PER_ORG_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter for rejected subjects; None matches all."""

    is_verified: bool | None = None
    code: FailureCode | None = None
    since: datetime | None = None
    limit: int = LIMIT_DEFAULT


@dataclass(frozen=True, slots=True)
class Entry:
    """A rejected subject and its current resolution."""

    row: RejectedSubject
    resolution: Resolution

    @property
    def proposal(self) -> Proposal | None:
        """The binding that would make it trusted, or None."""
        return self.resolution.proposal


async def list_entries(
    store: Store, issuers: Issuers, tenant_id: str, wanted: Wanted, now: datetime
) -> Sequence[Entry]:
    """The organisation's rejected subjects, last rejected first.

    Expired rows are left out even if they are not deleted yet.
    """
    floor = now - KEPT_FOR
    async with store.read() as session:
        rows = await list_rejected(
            session,
            tenant_id,
            since=floor if wanted.since is None else max(wanted.since, floor),
            limit=wanted.limit,
            is_verified=wanted.is_verified,
            code=wanted.code,
        )
        resolutions = await list_resolutions(session, tenant_id, rows, issuers)
    return [Entry(row, resolutions.get(row.digest, Resolution())) for row in rows]


async def get_entry(
    store: Store, issuers: Issuers, tenant_id: str, digest: str, now: datetime
) -> Entry:
    """The organisation's rejected subject with this digest. Raises RejectedNotFound."""
    async with store.read() as session:
        row = await find_rejected(session, tenant_id, digest, since=now - KEPT_FOR)
        if row is None:
            raise RejectedNotFound
        resolutions = await list_resolutions(session, tenant_id, [row], issuers)
    return Entry(row, resolutions.get(digest, Resolution()))
