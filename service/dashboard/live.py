"""Live rows of the audit page: newly accepted rows as server-sent events (HTML, 9.2).

Rows are sent in the order of acceptance, rendered as on the page, with their seq as `id`: a client
that reconnects with the last id it received misses no row and gets none twice.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from analytics.export.wire import json_objects
from analytics.model.errors import StoreFault
from analytics.model.filters import Query, only, parse_query
from analytics.model.schema import parse_audit_id
from service.access.callers import Caller, MemberPrincipal
from service.audit.tenant_log import open_log
from service.dashboard.rows import ShownRow
from service.dashboard.services import DashboardServices
from service.dashboard.shown_rows import load_shown_rows
from service.dashboard.state import State, parse_state
from service.errors import Invalid, QueryTooSlow, Refusal, StoreUnavailable, Unauthenticated
from service.orgs.roles import Capability
from service.store.store import Store
from service.store.tables import Organisation
from service.web.templates import render_template

POLL_S: Final = 1.0
HEARTBEAT_S: Final = 15.0
"""Proxies and browsers close idle connections."""

CHECK_S: Final = 30.0
"""How long a stream may outlive the session or capability that it was opened with."""

AT_ONCE_MAX: Final = 200
"""Rows sent for one poll; if there are more, the page only says so."""

READ_MAX_S: Final = 3.0
RETRY_MS: Final = 3_000
_SESSION_OVER: Final = "Your session has ended: sign in again to see new rows."
_RIGHT_LOST: Final = "You no longer have access to the audit log."
_NOT_READ: Final = "New rows cannot be read at the moment."
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """Which rows to send: those accepted after `seen`, or from now on if it is None."""

    state: State
    query: Query
    seen: int | None


def parse_live(
    parameters: Mapping[str, list[str]], last_event_id: str | None, now: datetime
) -> LiveRequest:
    """The live rows that a page requests; a client that reconnects sends its last event's id.

    Raises InvalidQuery, Invalid.
    """
    given = {name: values for name, values in parameters.items() if name != "after"}
    state = parse_state(given)
    if state.is_too_long or not state.is_live:
        raise Invalid("live rows need the order newest first, without until and cursor")
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
    """The stream, until the client disconnects or loses access, or the server stops.

    Raises TooManyStreams before its first event.
    """
    places = services.live
    session_id = caller.session_id if isinstance(caller, MemberPrincipal) else None
    with places.place(org.id, session_id):
        # Before the headers are sent: a client that has them misses no row accepted since.
        watch = _Watch(services, caller, org, wanted, await _last_seq(services.store))
        yield f"retry: {RETRY_MS}\n\n"
        beat_at, check_at = time.monotonic() + HEARTBEAT_S, time.monotonic() + CHECK_S
        try:
            while await places.pause(POLL_S):
                # Before new rows are read: a caller without access must not get them.
                if time.monotonic() >= check_at:
                    await watch.check()
                    check_at = time.monotonic() + CHECK_S
                async for event in watch.new_events():
                    yield event
                if time.monotonic() >= beat_at:
                    yield watch.heartbeat
                    beat_at = time.monotonic() + HEARTBEAT_S
        except (Refusal, StoreFault) as error:
            yield _event("ended", _why(error))


def _why(error: Refusal | StoreFault) -> str:
    """The page's message at the end of its stream; the log has details."""
    if isinstance(error, StoreFault | StoreUnavailable):
        _log.error("store_fault", reason=str(error))
        return _NOT_READ
    return _SESSION_OVER if isinstance(error, Unauthenticated) else _RIGHT_LOST


class _Watch:
    """Polls for new rows that the caller may read."""

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
        # After a backup is restored, a page may have seen newer rows than there are.
        self._seen = newest if wanted.seen is None else min(wanted.seen, newest)

    async def check(self) -> None:
        """Raise Refusal if the caller has lost access. This does not extend their session."""
        async with self._services.store.read() as session:
            self._caller, self._org = await self._services.access.reauthorize(
                session, self._caller, self._org, Capability.AUDIT_READ
            )

    async def new_events(self) -> AsyncIterator[str]:
        """The rows since the last poll, each an event. Raises StoreFault, StoreUnavailable.

        If the whole service has no new row, this reads a single database row.
        """
        if await _last_seq(self._services.store) == self._seen:
            return
        rows, self._seen = await self._read_after(self._seen)
        if rows is None:
            yield _event("more", str(AT_ONCE_MAX), self._seen)
            return
        for row in rows:
            shown = await render_template(
                "live_row.html",
                row=row,
                slug=self._org.slug,
                columns=self._wanted.state.columns,
            )
            yield _event("row", shown, parse_audit_id(row.entry["id"]))

    async def _read_after(self, seen: int) -> tuple[list[ShownRow] | None, int]:
        """The rows after `seen`, None if they are too many, and the last seq covered."""
        services, query = self._services, self._wanted.query
        log = await open_log(services.store, services.audit.lake, self._org, services.clock())
        try:
            rows = await log.accepted_after(query, seen, AT_ONCE_MAX + 1, READ_MAX_S)
        except QueryTooSlow:
            return None, log.snapshot.watermark
        if rows.num_rows > AT_ONCE_MAX:
            return None, log.snapshot.watermark
        texts = json_objects(rows, self._org.id)
        state, now = self._wanted.state, services.clock()
        shown = await load_shown_rows(services, self._org, texts, state, now)
        return shown, log.snapshot.watermark

    @property
    def heartbeat(self) -> str:
        """A comment, with the last seq covered as id: the page gets no event."""
        return f": still here\nid: {self._seen}\n\n"


async def _last_seq(store: Store) -> int:
    """See `Store.last_seq`. The read is completed even if the client disconnects, as most do here.

    A cancelled read would lose a pooled connection and log a long traceback.
    """
    return await asyncio.shield(asyncio.create_task(store.last_seq()))


def _event(name: str, data: str, seq: int | None = None) -> str:
    """One event. Each line of `data` is prefixed, so that no value in it can start a field."""
    lines = [f"event: {name}", *(f"data: {line}" for line in re.split(r"\r\n|\r|\n", data))]
    if seq is not None:
        lines.append(f"id: {seq}")
    return "\n".join(lines) + "\n\n"
