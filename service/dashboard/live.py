"""Live rows of the audit page: what is accepted from now on, as server-sent events (HTML, 9.2).

Rows come in the order of acceptance, each as the page shows it and under its seq as `id`: whoever
comes back with the last id they saw misses no row and sees none twice.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog
from quart import render_template

from analytics.export.wire import json_objects
from analytics.model.errors import StoreFault
from analytics.model.filters import Query, only, parse_query
from analytics.model.retention import Tier, retention_floor
from analytics.model.schema import parse_audit_id
from service.access.callers import Caller, MemberPrincipal
from service.dashboard.navigation import may
from service.dashboard.rows import ShownRow, shown_row
from service.dashboard.services import DashboardServices
from service.dashboard.state import State, parse_state
from service.errors import (
    Invalid,
    QueryTooSlow,
    Refusal,
    StoreUnavailable,
    Unauthenticated,
)
from service.orgs.roles import Capability
from service.store.store import Store
from service.store.tables import Organisation

POLL_S: Final = 1.0
HEARTBEAT_S: Final = 15.0
"""Proxies and browsers give a connection up on which nothing comes."""

CHECK_S: Final = 30.0
"""How long a stream may outlive the session or the right that it was opened with."""

AT_ONCE_MAX: Final = 200
"""Rows that may come between two looks; of more the page says only that there are more."""

READ_MAX_S: Final = 3.0
RETRY_MS: Final = 3_000
_SESSION_OVER: Final = "Your session has ended: sign in again to see new rows."
_RIGHT_LOST: Final = "You may not see the audit log any more."
_NOT_READ: Final = "New rows cannot be read just now."
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """Which rows are waited for; those accepted after `seen` have not been sent. None is now."""

    state: State
    query: Query
    seen: int | None


def parse_live(
    parameters: Mapping[str, list[str]], last_event_id: str | None, now: datetime
) -> LiveRequest:
    """What a page waits for. Who comes back after a break names the last event they saw.

    Raises InvalidQuery, Invalid.
    """
    given = {name: values for name, values in parameters.items() if name != "after"}
    state = parse_state(given)
    if state.is_too_long or not state.is_live:
        raise Invalid("live rows come newest first, without until and cursor")
    state.check_window()
    query = parse_query(state.as_of(now).filters)
    return LiveRequest(state, query, _seq(last_event_id or only(parameters, "after")))


def _seq(text: str | None) -> int | None:
    if text is not None and not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise Invalid("after must be the id of an event", field="after")
    return None if text is None else int(text)


async def live_events(
    services: DashboardServices, caller: Caller, org: Organisation, wanted: LiveRequest
) -> AsyncGenerator[str, None]:
    """The stream, until its reader leaves, may not read on, or the server ends.

    Raises TooManyStreams before its first event.
    """
    places = services.live
    session_id = caller.session_id if isinstance(caller, MemberPrincipal) else None
    with places.place(org.id, session_id):
        # Before the head is sent: whoever has it misses nothing that is accepted from then on.
        watch = _Watch(services, caller, org, wanted, await _last_seq(services.store))
        yield f"retry: {RETRY_MS}\n\n"
        beat_at, check_at = time.monotonic() + HEARTBEAT_S, time.monotonic() + CHECK_S
        try:
            while await places.pause(POLL_S):
                if time.monotonic() >= check_at:
                    await watch.check()
                    check_at = time.monotonic() + CHECK_S
                async for event in watch.news():
                    yield event
                if time.monotonic() >= beat_at:
                    yield watch.heartbeat
                    beat_at = time.monotonic() + HEARTBEAT_S
        except (Refusal, StoreFault) as error:
            yield _event("ended", _why(error))


def _why(error: Refusal | StoreFault) -> str:
    """What the page says of the end of its stream; the log says more."""
    if isinstance(error, StoreFault | StoreUnavailable):
        _log.error("store_fault", reason=str(error))
        return _NOT_READ
    return _SESSION_OVER if isinstance(error, Unauthenticated) else _RIGHT_LOST


class _Watch:
    """Looks for new rows on behalf of somebody who may see them."""

    def __init__(
        self,
        services: DashboardServices,
        caller: Caller,
        org: Organisation,
        wanted: LiveRequest,
        newest: int,
    ) -> None:
        self._services = services
        self._caller = caller
        self._org = org
        self._wanted = wanted
        # A page may have seen what is newer than all there is: a backup was restored since.
        self._seen = newest if wanted.seen is None else min(wanted.seen, newest)

    async def check(self) -> None:
        """Raise Refusal if whoever looks may not any more. To a session this is no use of it."""
        async with self._services.store.read() as session:
            self._caller, self._org = await self._services.access.reauthorize(
                session, self._caller, self._org, Capability.AUDIT_READ
            )

    async def news(self) -> AsyncIterator[str]:
        """The rows since the last look, each an event. Raises StoreFault, StoreUnavailable.

        With nothing new in the whole service this is one read of one line.
        """
        if await _last_seq(self._services.store) == self._seen:
            return
        rows, self._seen = await self._look(self._seen)
        if rows is None:
            yield _event("more", str(AT_ONCE_MAX), self._seen)
            return
        sees_bindings = may(self._caller, Capability.OIDC_READ, self._org)
        bindings_of = self._org.slug if sees_bindings else None
        for row in rows:
            shown = await render_template("live_row.html", row=row, bindings_of=bindings_of)
            yield _event("row", shown, parse_audit_id(row.entry["id"]))

    async def _look(self, seen: int) -> tuple[list[ShownRow] | None, int]:
        """The rows after `seen`, None if they are too many, and up to where this looked."""
        rows_now = await self._services.store.snapshot(self._org.id)
        floor = retention_floor(Tier(self._org.tier), self._services.clock())
        query = self._wanted.query.not_before(floor)
        try:
            rows = await self._services.audit.lake.accepted_after(
                rows_now, query, seen, AT_ONCE_MAX + 1, READ_MAX_S
            )
        except QueryTooSlow:
            return None, rows_now.watermark
        if rows.num_rows > AT_ONCE_MAX:
            return None, rows_now.watermark
        entries = json_objects(rows, self._org.id)
        return [shown_row(entry, self._wanted.state) for entry in entries], rows_now.watermark

    @property
    def heartbeat(self) -> str:
        """A comment, and how far has been looked: no event to the page, only to its browser."""
        return f": still here\nid: {self._seen}\n\n"


async def _last_seq(store: Store) -> int:
    """See `Store.last_seq`. Who leaves meanwhile leaves it to its end, as most of them will.

    A read that is broken off costs the pool its connection, and the log a page of it.
    """
    return await asyncio.shield(asyncio.create_task(store.last_seq()))


def _event(name: str, data: str, seq: int | None = None) -> str:
    """One event. Each line of `data` is marked as such: no value in it can begin another field."""
    lines = [f"event: {name}", *(f"data: {line}" for line in re.split(r"\r\n|\r|\n", data))]
    if seq is not None:
        lines.append(f"id: {seq}")
    return "\n".join(lines) + "\n\n"
