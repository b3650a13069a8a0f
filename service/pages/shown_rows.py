"""Rows of the audit log as pages show them, with display names for people and keys."""

from collections.abc import Iterable
from datetime import datetime

from service.audit.actor_names import names_of_actors
from service.pages.rows import RowContext, ShownRow, decoded_entries, named_in, shown_row
from service.pages.services import DashboardServices
from service.pages.state import State
from service.store.tables import Organisation


async def load_shown_rows(
    services: DashboardServices,
    org: Organisation,
    texts: Iterable[str],
    state: State,
    now: datetime,
) -> list[ShownRow]:
    """The rows of these JSON objects, in their order; their links keep the window of `state`."""
    entries = decoded_entries(texts)
    async with services.store.read() as session:
        names = await names_of_actors(session, org.id, named_in(entries))
    context = RowContext(state, names, services.bindings.issuers.values(), now)
    return [shown_row(entry, context) for entry in entries]
