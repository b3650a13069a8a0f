"""What the jobs on segments need to know of open tables (`service.audit.open_table`)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from analytics.storage.segment_metadata import Segment


class OpenTables(Protocol):
    """The published tables, whose snapshots name files of segments."""

    async def publish_due(self) -> None:
        """Bring all tables up to date."""
        ...

    async def expire_due(self) -> None:
        """Expire snapshots that were superseded long enough ago."""
        ...

    async def published_before(self) -> datetime | None:
        """Segments retired before this can be in no later publication; None: there is no table."""
        ...

    async def released(self, retired: Sequence[Segment], at: datetime) -> list[Segment]:
        """Those of `retired` that no unexpired snapshot names; `at` is now."""
        ...
