"""What a page had to do without is learnt aside, so that the next one has it."""

import asyncio
import time
from datetime import timedelta

from tests.analytics.samples import sample_row
from tests.conftest import START, refused


async def test_the_second_search_for_a_value_that_is_nowhere_opens_no_file(audit):
    """The first one lets the service learn which values its files hold; nobody waits for that."""
    await audit.accept([sample_row(START - timedelta(days=n)) for n in range(3)])
    await audit.seal()
    query = {"package": "nowhere", "order": "asc"}
    assert (await audit.page(**query))["entries"] == []
    await _until_learnt(audit)
    files = list(audit.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"))
    for path in files:
        path.unlink()

    assert files
    assert (await audit.page(**query))["entries"] == []
    assert (await refused(await audit.get(package="left-pad", order="asc")))[0] == 503


async def _until_learnt(audit) -> None:
    ends_at = time.monotonic() + 20
    lake = audit.services.lake
    while lake._learning is None or not lake._learning.done():
        assert time.monotonic() < ends_at, "nothing was learnt"
        await asyncio.sleep(0.01)
