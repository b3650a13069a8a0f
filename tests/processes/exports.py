"""An audit log too large to hide in socket buffers."""

import base64
import json
import random
from datetime import timedelta

from analytics.model.rows import AuditRow
from service.app.composition import Services
from service.store.journal import append
from service.store.organisations import get_org
from tests.analytics.samples import sample_row

EXPORT_PATH = "/admin/ui/orgs/acme/audit/export?format=json"
DAYS = 25
ROWS_A_DAY = 1_000


async def add_history(services: Services, rows_a_day: int = ROWS_A_DAY) -> None:
    """DAYS sealed days of acme, each one segment; some 2.5 KB of JSON a row."""
    now = services.clock()
    for day in range(1, DAYS + 1):
        at = (now - timedelta(days=day)).replace(hour=12)
        rows = [_row(at + timedelta(seconds=number)) for number in range(rows_a_day)]
        async with services.store.write() as work:
            acme = await get_org(work.session, "acme")
            await append(work.session, acme.id, rows, now=now)
    await services.sealer.seal_due(everything=True)


def _row(created_at) -> AuditRow:
    # Nothing that compression could make small enough to vanish in a buffer.
    padding = base64.b64encode(random.Random(str(created_at)).randbytes(1_500)).decode()
    payload = json.dumps({"rule_id": "r1", "source": "osv", "padding": padding})
    return sample_row(created_at, payload=payload)
