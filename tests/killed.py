"""A process that works on a data dir until it is killed: started by `tests.power.kill_process`."""

import asyncio
import io
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from analytics.imports.chunks import FileKind, ImportFormat
from service.access.callers import cli_caller
from service.app.composition import Services, build_services
from service.audit.backup.segment_restore import SegmentRestore, choose_segments, open_sources
from service.audit.importer import ImportFile, ImportJob, ImportWatch
from service.audit.upload import upload_segments
from service.core.settings import Settings
from service.packages.policy.blocklist import BlocklistImporter
from service.store.organisations import get_org
from tests.power import at, watched_steps


class Order(msgspec.Struct):
    """What to do, by which clock, and the step not to take any more (see `tests.power.at`)."""

    settings: Settings
    now: datetime
    work: str
    last: dict[str, Any]


async def import_file(services: Services) -> None:
    """The NDJSON on standard input, into acme."""
    content = sys.stdin.buffer.read()
    async with services.store.read() as session:
        org = await get_org(session, "acme")
    kind = FileKind(ImportFormat.NDJSON)
    source = ImportFile("audit.ndjson", io.BytesIO(content), len(content), kind)
    job = ImportJob(org, source, cli_caller("org_platform").audit_context, is_partial=False)
    await services.importer.take(job, ImportWatch(lambda _: None, lambda _: None), 0.0)


async def import_blocklist(services: Services) -> None:
    """The zip of OSV records on standard input."""
    importer = BlocklistImporter(services.store)
    content = io.BytesIO(sys.stdin.buffer.read())
    by = cli_caller("org_platform").audit_context
    await importer.import_file(content, "osv.zip", ["MAL-*"], by)


async def publish(services: Services) -> None:
    """The tables of the settings, of which each has its own steps."""
    await services.publisher.publish(services.settings.lake_formats)


async def restore_segments(services: Services) -> None:
    sources = open_sources(services.settings, [sys.stdin.read()])
    work = SegmentRestore(services, sources, cli_caller("org_platform").audit_context)
    for segment in await choose_segments(services, None, None, ()):
        await work.restore(segment)


WORK: Final[dict[str, Callable[[Services], Awaitable[Any]]]] = {
    "seal": lambda services: services.sealer.seal_due(everything=True),
    "prune": lambda services: services.pruner.prune_in_background(),
    "unlink": lambda services: services.garbage_collector.unlink_retired(),
    "publish": publish,
    "upload": lambda services: upload_segments(services.store, services.lake, lambda *_: None),
    "expire": lambda services: services.publisher.expire(),
    "import": import_file,
    "blocklist": import_blocklist,
    "restore-segments": restore_segments,
}


async def obey(order: Order) -> None:
    """Do the work. The step behind it is called END."""
    is_last = at(**order.last)

    def on_step(step: str) -> None:
        if is_last(step):
            os.kill(os.getpid(), signal.SIGKILL)

    services = build_services(order.settings, lambda: order.now)
    with watched_steps(services.store, on_step):
        await WORK[order.work](services)
        on_step("END")
    await services.close()


if __name__ == "__main__":
    given = msgspec.json.decode(
        sys.argv[1], type=Order, dec_hook=lambda kind, value: kind(value) if kind is Path else value
    )
    asyncio.run(obey(given))
