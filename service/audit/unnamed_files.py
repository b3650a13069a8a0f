"""Files that an import has written and not yet committed, kept from being swept."""

from datetime import timedelta
from typing import Final

from service.clock import Clock
from service.errors import Refusal
from service.lake import Lake

_RENEWALS: Final = 4
"""How often files are renewed while the grace of orphans passes."""


class ImportOvertaken(Refusal):
    """The import stood still for so long that its files were taken for orphans."""

    status = 503
    text = (
        "files of this import were removed before it could commit: it stood still for longer than"
        " COUNTERSIGN_ORPHAN_GRACE_S; import the file again"
    )


class UnnamedFiles:
    """The segments in `buffer`, of which no catalog line tells.

    To the sweeper such files are orphans, and it removes those last written before the grace. An
    import takes as long as it takes and does not hold the lease, so it renews the time its files
    were written, again and again. When it is killed that ends, and the files are swept.
    """

    def __init__(self, lake: Lake, clock: Clock, grace_s: float, tenant_id: str) -> None:
        self.buffer = lake.segment_buffer(tenant_id)
        self._lake = lake
        self._clock = clock
        self._renew_after = timedelta(seconds=grace_s / _RENEWALS)
        self._renewed_at = clock()

    async def keep(self) -> None:
        """Renew the files if that is due. Raises ImportOvertaken if one is gone."""
        if self._clock() - self._renewed_at > self._renew_after:
            await self.confirm()

    async def confirm(self) -> None:
        """Renew the files, each of which is there. Raises ImportOvertaken.

        Under the lease they stay from then on. Even one who has lost the lease without knowing,
        and goes on with a sweep that began earlier, finds them younger than its grace.
        """
        self._renewed_at = self._clock()
        try:
            await self._lake.renew_segments(self.buffer.segments, self._renewed_at)
        except FileNotFoundError as error:
            raise ImportOvertaken from error

    async def discard(self) -> None:
        """Remove the files: they were offered to no catalog."""
        await self._lake.run_uncancellable(self.buffer.discard)
