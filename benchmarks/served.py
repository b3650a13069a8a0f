"""A server over a generated set, whose files are linked so that benchmarks do not change it."""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from analytics.model.retention import Tier
from analytics.storage.segment_metadata import Segment
from benchmarks.server import ServerClient, running_server
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.catalog import add_segments
from service.store.journal import take_seq
from service.store.tables import Organisation

SLUG = "bench"
"""The organisation of the first segment; the others' slugs are their ids."""


@contextmanager
def served(
    segments: Sequence[Segment], folder: Path, environment: dict[str, str] | None = None
) -> Iterator[ServerClient]:
    """A server whose organisations have `segments`, with their files in `folder`."""
    with tempfile.TemporaryDirectory(dir=folder) as data_dir:
        asyncio.run(found(segments, folder / "audit", Path(data_dir)))
        with running_server(Path(data_dir), environment) as client:
            yield client


def link_segment(segment: Segment, source: Path, target: Path) -> None:
    """Link the files of `segment` from the audit folder `source` into another on the same disk."""
    segment.path(target).parent.mkdir(parents=True, exist_ok=True)
    os.link(segment.path(source), segment.path(target))
    if segment.index_size:
        os.link(segment.index_path(source), segment.index_path(target))


async def found(segments: Sequence[Segment], root: Path, data_dir: Path) -> None:
    """Create the organisations, with links to their files."""
    settings = await prepare(Settings(data_dir=data_dir))
    for segment in segments:
        link_segment(segment, root, settings.audit_dir)
    services = build_services(settings, utc_now)
    first = segments[0].tenant_id
    async with services.store.write() as work:
        for tenant_id in {segment.tenant_id for segment in segments}:
            work.session.add(
                Organisation(
                    id=tenant_id,
                    slug=SLUG if tenant_id == first else tenant_id.replace("_", "-"),
                    tier=Tier.ENTERPRISE,
                    role_overrides={},
                    created_at=work.now,
                )
            )
        await work.session.flush()
        await take_seq(work.session, max(segment.max_seq for segment in segments), work.now)
        await add_segments(work.session, list(segments), work.now)
    await services.close()
