"""Protects files of an uncommitted import from the sweeper."""

from datetime import timedelta
from functools import partial
from typing import Final

from analytics.storage.segment_store import Overtaken
from service.audit.lake import Lake
from service.core.clock import Clock
from service.core.errors import Refusal
from service.core.threads import run_uncancellable

_RENEWALS: Final = 4
"""How often files are renewed within the grace period of orphans."""


class ImportOvertaken(Refusal):
    """The import was paused for so long that its files were removed as orphans."""

    status = 503
    is_temporary = True
    text = (
        "files of this import were removed before it could commit: it was paused for longer than"
        " COUNTERSIGN_ORPHAN_GRACE_S; import the file again"
    )


class UnnamedFiles:
    """The segments in `buffer`, which are not in the catalog yet.

    To the sweeper such files are orphans: it removes those last modified before the grace period.
    An import may take longer and does not hold the lease, so it renews its claim on them: in a
    folder their modification times, in an object store an object that lists them. If it is killed
    the renewal ends, and the files are swept.
    """

    def __init__(self, lake: Lake, clock: Clock, grace_s: float, tenant_id: str) -> None:
        self._claim = lake.claim(grace_s)
        self.buffer = lake.segment_buffer(tenant_id, self._claim)
        self._clock = clock
        self._renew_after = timedelta(seconds=grace_s / _RENEWALS)
        self._renewed_at = clock()

    async def keep(self) -> None:
        """Renew the files if that is due. Raises ImportOvertaken if one is missing."""
        if self._clock() - self._renewed_at > self._renew_after:
            await self.confirm()

    async def confirm(self) -> None:
        """Renew the files. Raises ImportOvertaken if one is missing.

        Under the lease they are kept from then on. Even a process that has lost the lease without
        noticing, and continues a sweep begun earlier, finds them newer than its limit.
        """
        self._renewed_at = self._clock()
        try:
            segments, now_s = self.buffer.segments, self._renewed_at.timestamp()
            await run_uncancellable(partial(self._claim.renew, segments, now_s))
        except Overtaken as error:
            raise ImportOvertaken from error

    async def discard(self) -> None:
        """Remove the files, which were never added to the catalog."""
        await run_uncancellable(self.buffer.discard)
        await self.release()

    async def release(self) -> None:
        """End the claim on the files: the catalog names them, or they were removed."""
        await run_uncancellable(self._claim.release)
