"""What changes stored rows, as the tests of crashes try it: how to fill, do and look at each."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.evidence.proving import checkpoints
from tests.service.audit.pruning import add_past, always_on, left, prune, pruned_rows
from tests.service.audit.test_import import line, take

RETIRED_S: Final = 100.0
"""The grace of retired files; tests set it."""

DAYS, ROWS = 3, 12
CONTENT: Final = b"".join(
    line(START - timedelta(days=number % DAYS), f"p{number}") for number in range(ROWS)
)
"""A file to import, of three days."""

Seen = Any


class Seal:
    """Two batches of acme's on one day and one on the day before, sealed together."""

    content = b""
    is_dated = False
    """Whether it gives its files the time of the test's clock, which is long ago."""

    async def fill(self, audit: AuditWorld) -> None:
        for days_ago in (0, 0, 1):
            at = START - timedelta(days=days_ago)
            await audit.accept([sample_row(at, package_name=f"p{n}") for n in range(4)])

    async def run(self, audit: AuditWorld) -> object:
        return await audit.services.sealer.seal_due(everything=True)

    async def see(self, audit: AuditWorld) -> Seen:
        """What there is to see of its rows."""
        return await audit.pages(limit=5)

    def done(self, before: Seen) -> Seen:
        """The same once it is done; by default there is no difference."""
        return before


class Merge(Seal):
    """Three segments of yesterday become one."""

    async def fill(self, audit: AuditWorld) -> None:
        for n in range(3):
            at = START - timedelta(days=1, seconds=n % 2)
            await audit.accept([sample_row(at, version=f"{n}.{k}") for k in range(3)])
            await audit.seal()

    async def run(self, audit: AuditWorld) -> object:
        return await audit.services.compactor.compact_due(everything=True)


class Unlink(Merge):
    """The files of merged segments are removed after their grace."""

    async def fill(self, audit: AuditWorld) -> None:
        await super().fill(audit)
        await super().run(audit)
        audit.clock.advance(seconds=RETIRED_S + 1)

    async def run(self, audit: AuditWorld) -> object:
        return await audit.services.garbage_collector.unlink_retired()


class Import(Seal):
    """CONTENT is imported beside rows that are sealed and not."""

    content = CONTENT
    is_dated = True

    async def fill(self, audit: AuditWorld) -> None:
        await audit.accept([sample_row(START, package_name="sealed")])
        await audit.seal()
        await audit.accept([sample_row(START, package_name="journalled")])

    async def run(self, audit: AuditWorld) -> object:
        return await take(audit, CONTENT)

    async def see(self, audit: AuditWorld) -> Seen:
        """The other rows; those of the file by name; how often the log tells of an import."""
        rows = await audit.pages(limit=5)
        own = {"install_allowed", "audit_imported"}
        names = sorted(row["packageName"] for row in rows if row["event"] == "install_allowed")
        told = sum(row["event"] == "audit_imported" for row in rows)
        return [row for row in rows if row["event"] not in own], names, told

    def done(self, before: Seen) -> Seen:
        return before[0], sorted(f"p{number}" for number in range(ROWS)), 1


class Prune(Seal):
    """12 rows of old days, sealed and not, are deleted; one of today is not."""

    async def fill(self, audit: AuditWorld) -> None:
        await always_on(audit, "free")
        await add_past(audit)
        await audit.accept([sample_row(START)])

    async def run(self, audit: AuditWorld) -> object:
        return await prune(audit)

    async def see(self, audit: AuditWorld) -> Seen:
        """The rows that are stored, and how many the log says were deleted."""
        told = [row["payload"]["rows"] for row in await pruned_rows(audit)]
        return await left(audit), told

    def done(self, before: Seen) -> Seen:
        return before[0][:1], [12]


class UnlinkPruned(Prune):
    """The files of pruned days are removed after their grace."""

    async def fill(self, audit: AuditWorld) -> None:
        await super().fill(audit)
        await super().run(audit)
        audit.clock.advance(seconds=RETIRED_S + 1)

    async def run(self, audit: AuditWorld) -> object:
        return await audit.services.garbage_collector.unlink_retired()

    def done(self, before: Seen) -> Seen:
        return before


class Sign(Seal):
    """Rows in segments, behind a first checkpoint, and in the journal are signed."""

    async def fill(self, audit: AuditWorld) -> None:
        await super().fill(audit)
        await audit.services.checkpointer.take_in()
        await audit.accept([sample_row(START, version=str(n)) for n in range(300)])
        await audit.seal()
        await super().fill(audit)

    async def run(self, audit: AuditWorld) -> object:
        return await audit.services.checkpointer.take_in()

    async def see(self, audit: AuditWorld) -> Seen:
        """The rows, and how many of acme's were signed when."""
        sizes = [signed.size for signed in await checkpoints(audit)]
        return await audit.pages(limit=1000), sizes

    def done(self, before: Seen) -> Seen:
        return before[0], [*before[1], len(before[0])]


OPERATIONS: Final[Mapping[str, Seal]] = {
    "seal": Seal(),
    "merge": Merge(),
    "unlink": Unlink(),
    "import": Import(),
    "prune": Prune(),
    "unlink pruned": UnlinkPruned(),
    "sign": Sign(),
}
