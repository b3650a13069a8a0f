"""Live rows of the audit page: newly accepted rows as server-sent events (HTML, 9.2).

Rows are sent in the order of acceptance, rendered as on the page, with their seq as `id`: a client
that reconnects with the last id it received misses no row and gets none twice. Streams are bounded
for each session and organisation, share what they render, and end with the server.
"""

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog
from msgspec import Struct
from quart import Blueprint, Response, request, stream_with_context
from quart.typing import ResponseReturnValue

from analytics.export.wire import json_objects
from analytics.model.errors import StoreFault
from analytics.model.filters import Query, only, parse_query
from analytics.model.schema import parse_audit_id
from service.access.callers import Caller
from service.access.roles import Capability
from service.audit.refusals import QueryTooSlow
from service.audit.tenant_log import open_log
from service.core.errors import (
    Busy,
    Invalid,
    Refusal,
    ServerBusy,
    StoreUnavailable,
    TooManyWaiting,
    Unauthenticated,
)
from service.pages.page import PageCall, page_get
from service.pages.rows import LogRow, load_log_rows
from service.pages.services import DashboardServices
from service.pages.state import PageState, parse_state
from service.store.store import Store
from service.store.tables import Organisation
from service.web.dependencies import group_of
from service.web.models import ParsedQuery
from service.web.request_parsing import refuse_head
from service.web.responses import begun
from service.web.templates import render_template

PER_ORG_MAX: Final = 50
PER_SESSION_MAX: Final = 4
"""Browsers open six connections to a server, and other requests need some of them."""

ROWS_PER_S: Final = 200
"""Rows rendered for one organisation, on average: they keep the event loop busy for a twentieth of
the time. Its pages are told of further ones, and do not show them."""

TOO_MANY_STREAMS: Final = Busy.of(
    "too many pages show live rows at once: close one of them", retry_after_s=30
)

_Shared = TypeVar("_Shared")


class LiveStreams:
    """The streams of this process, limited for each organisation and each session or key."""

    def __init__(self) -> None:
        self._shared: dict[Hashable, Any] = {}
        self._users: Counter[Hashable] = Counter()
        self._rendered: dict[str, tuple[float, float]] = {}
        """By tenant id: rows that may be rendered now, and as of when (monotonic clock)."""

        self._taken: Counter[str] = Counter()
        self._ending = asyncio.Event()

    @contextmanager
    def slot(self, tenant_id: str, caller: str) -> Iterator[None]:
        """Count one stream of `caller` during the block: a session or key, empty for the operator.

        Raises TOO_MANY_STREAMS.
        """
        bounds = {tenant_id: PER_ORG_MAX}
        if caller:
            bounds[caller] = PER_SESSION_MAX
        # No await up to the update below: two streams cannot take the same last slot.
        if any(self._taken[key] >= most for key, most in bounds.items()):
            raise TOO_MANY_STREAMS
        self._taken.update(bounds.keys())
        try:
            yield
        finally:
            self._taken -= Counter(bounds.keys())  # drops keys with a count of 0

    @contextmanager
    def shared(self, view: Hashable, make: Callable[[], _Shared]) -> Iterator[_Shared]:
        """What the streams of one view share: made for the first, dropped after the last."""
        shared = self._shared.get(view)
        if shared is None:
            shared = self._shared[view] = make()
        self._users[view] += 1
        try:
            yield shared
        finally:
            self._users -= Counter([view])  # drops a count of 0
            if view not in self._users:
                del self._shared[view]

    def may_render(self, tenant_id: str, rows: int) -> bool:
        """Whether so many more rows of the organisation may be rendered now; counts them if so."""
        now = time.monotonic()
        left, since = self._rendered.get(tenant_id, (float(ROWS_PER_S), now))
        left = min(ROWS_PER_S, left + (now - since) * ROWS_PER_S)
        is_allowed = rows <= left
        self._rendered[tenant_id] = (left - rows if is_allowed else left, now)
        return is_allowed

    async def pause(self, seconds: float) -> bool:
        """Wait, or return False at once when the server is stopping."""
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return True
        return False

    def end(self) -> None:
        """End all streams, so that the server's shutdown does not wait for them."""
        self._ending.set()


blueprint = Blueprint("dashboard_live", __name__, url_prefix="/admin/ui/orgs/<slug>/audit/live")

POLL_S: Final = 1.0
HEARTBEAT_S: Final = 15.0
"""Proxies and browsers close idle connections."""

CHECK_S: Final = 30.0
"""How long a stream may outlive the session or capability that it was opened with."""

AT_ONCE_MAX: Final = 200
"""Rows sent for one poll; if there are more, the page only says so."""

EVENTS_MAX: Final = 2 * AT_ONCE_MAX
"""Events in memory for streams of the same page that look a little later."""

READ_MAX_S: Final = 3.0
RETRY_MS: Final = 3_000
_SESSION_OVER: Final = "Your session has ended: sign in again to see new rows."
_RIGHT_LOST: Final = "You no longer have access to the audit log."
_NOT_READ: Final = "New rows cannot be read at the moment."
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LiveSelection:
    """Which rows to send: those accepted after `seen`, or from now on if it is None."""

    state: PageState
    query: Query
    seen: int | None


def parse_live(
    parameters: Mapping[str, list[str]], last_event_id: str | None, now: datetime
) -> LiveSelection:
    """The live rows that a page requests; a client that reconnects sends its last event's id.

    Raises InvalidQuery, Invalid.
    """
    state = parse_state({name: values for name, values in parameters.items() if name != "after"})
    if state.is_too_long or not state.is_live:
        raise Invalid("live rows need the order newest first, without until and cursor")
    state.check_window()
    query = parse_query(state.as_of(now).filters)
    return LiveSelection(state, query, _seq(last_event_id or only(parameters, "after")))


def _seq(text: str | None) -> int | None:
    if text is not None and not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise Invalid("after must be the id of an event", field="after")
    return None if text is None else int(text)


@page_get(
    blueprint,
    "",
    needs=Capability.AUDIT_READ,
    query=ParsedQuery(Struct, dict, checks_names=True),
    keeps_alive=False,
)
async def live_rows(call: PageCall, parameters: dict[str, list[str]]) -> ResponseReturnValue:
    """Stream new rows, rendered as on the audit page, until the client disconnects."""
    refuse_head(request)
    last_event_id = request.headers.get("last-event-id")
    selection = parse_live(parameters, last_event_id, call.services.clock())
    events = await begun(live_events(call.services, call.caller, call.org, selection))
    response = Response(
        stream_with_context(lambda: events)(),
        content_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )
    response.timeout = None  # Quart's own is a minute
    return response


async def live_events(
    services: DashboardServices, caller: Caller, org: Organisation, selection: LiveSelection
) -> AsyncGenerator[str, None]:
    """The stream, until the client disconnects or loses access, or the server stops.

    Raises TOO_MANY_STREAMS before its first event.
    """
    streams = group_of(LiveStreams)
    with streams.slot(org.id, caller.limited_as):
        # Before the headers are sent: a client that has them misses no row accepted since.
        newest = await _last_seq(services.store)
        # After a backup is restored, a page may have seen newer rows than there are.
        seen = newest if selection.seen is None else min(selection.seen, newest)
        # Equal for streams that send the same. The tier decides how far back rows may be seen.
        view = org.id, org.tier, selection.state.saved, selection.query
        with streams.shared(view, lambda: _Feed(services, org, selection, newest)) as feed:
            yield f"retry: {RETRY_MS}\n\n"
            try:
                async for events in _watch(services, caller, org, feed, seen):
                    yield events
            except (Refusal, StoreFault) as error:
                yield _event("ended", _why(error))


async def _watch(
    services: DashboardServices, caller: Caller, org: Organisation, feed: "_Feed", seen: int
) -> AsyncIterator[str]:
    """What the stream sends after the seq `seen`, until the server stops.

    It does not extend the caller's session. Raises Refusal once they have lost access; StoreFault.
    """
    beat_at, check_at = time.monotonic() + HEARTBEAT_S, time.monotonic() + CHECK_S
    while await group_of(LiveStreams).pause(POLL_S):
        # Before new rows are read: a caller without access must not get them.
        if time.monotonic() >= check_at:
            async with services.store.read() as session:
                caller, org = await services.access.reauthorize(
                    session, caller, org, Capability.AUDIT_READ
                )
            feed.renew(org)
            check_at = time.monotonic() + CHECK_S
        events, seen = await feed.after(seen)
        if events:
            yield events
        if time.monotonic() >= beat_at:
            yield f": still here\nid: {seen}\n\n"  # a comment: the page gets no event
            beat_at = time.monotonic() + HEARTBEAT_S


def _why(error: Refusal | StoreFault) -> str:
    """The page's message at the end of its stream; the log has details."""
    if isinstance(error, StoreFault | StoreUnavailable):
        _log.error("store_fault", reason=str(error))
        return _NOT_READ
    return _SESSION_OVER if isinstance(error, Unauthenticated) else _RIGHT_LOST


class _Feed:
    """The new rows of one view, read and rendered once for all streams that show it.

    `_from` is the seq after which no event is missing, and `_covered` the last one looked at.
    """

    def __init__(
        self,
        services: DashboardServices,
        org: Organisation,
        selection: LiveSelection,
        newest: int,
    ) -> None:
        self._services = services
        self._org = org
        self._state, self._query = selection.state, selection.query
        self._from = self._covered = newest
        self._events: deque[tuple[int, str]] = deque()
        self._reading = asyncio.Lock()
        self._look_at = 0.0

    async def after(self, seen: int) -> tuple[str, int]:
        """The events after the seq `seen`, and the last seq covered.

        Raises StoreFault, StoreUnavailable. If the whole service has no new row, this reads a
        single database row, for all streams together.
        """
        if seen < self._from:
            # A client that reconnects, or fell behind: it has to be told more than is kept.
            own, covered = await self._read_after(seen)
            return "".join(text for _, text in own), covered
        async with self._reading:
            if time.monotonic() >= self._look_at:
                await self._look()
                self._look_at = time.monotonic() + POLL_S
        events = [text for seq, text in self._events if seq > seen]
        return "".join(events), max(seen, self._covered)

    def renew(self, org: Organisation) -> None:
        """Rows are those that `org`, as it is now, may see."""
        self._org = org

    async def _look(self) -> None:
        if await _last_seq(self._services.store) == self._covered:
            return
        events, self._covered = await self._read_after(self._covered)
        self._events += events
        while len(self._events) > EVENTS_MAX:
            self._from = self._events.popleft()[0]

    async def _read_after(self, seen: int) -> tuple[list[tuple[int, str]], int]:
        """The events after `seen`, each with its seq, and the last seq covered."""
        services, org, now = self._services, self._org, self._services.clock()
        log = await open_log(services.store, services.audit.lake, org, now)
        watermark = log.snapshot.watermark
        more = [(watermark, _event("more", str(AT_ONCE_MAX), watermark))]
        try:
            rows = await log.accepted_after(self._query, seen, AT_ONCE_MAX + 1, READ_MAX_S)
        except QueryTooSlow:
            return more, watermark
        except (TooManyWaiting, ServerBusy):
            return [], seen  # the next look finds them
        if rows.num_rows > AT_ONCE_MAX or not group_of(LiveStreams).may_render(
            org.id, rows.num_rows
        ):
            return more, watermark
        texts = json_objects(rows, org.id)
        log_rows = await load_log_rows(services, org, texts, self._state, now)
        return [await self._rendered(row) for row in log_rows], watermark

    async def _rendered(self, row: LogRow) -> tuple[int, str]:
        html = await render_template(
            "live_row.html", row=row, slug=self._org.slug, columns=self._state.columns
        )
        seq = parse_audit_id(row.entry["id"]) or 0
        return seq, _event("row", html, seq)


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
