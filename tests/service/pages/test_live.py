"""Live rows: what the audit page's stream sends, to whom, and when it ends."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select

from analytics.model.envelopes import BlocklistHit
from analytics.model.errors import StoreFault
from service.access.sessions import revoke_sessions
from service.audit.refusals import QueryTooSlow
from service.audit.tenant_log import TenantLog
from service.core.errors import ServerBusy, TooManyWaiting
from service.core.settings import Settings
from service.orgs.members import remove_member, set_role
from service.orgs.organisations import set_tier
from service.pages import live
from service.pages.live import TOO_MANY_STREAMS
from service.store.tables import Member, Session
from tests.conftest import BY_OPERATOR, SettableClock, World, refused, running_world
from tests.service.pages.page import AUDIT, Page, add_install, open_page

LIVE = f"{AUDIT}/live"
PATIENCE_S = 10
"""Less than HANG_S: if a mutant leaves a statement out, some events never come."""

BLOCK = BlocklistHit(rule_id="MAL-1", source="osv")
HOSTILE = """a\rdata: x\r\revent: ended\r\n\r\n</tr><script>alert(1)</script>"""


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for rows as often as the test can."""
    monkeypatch.setattr(live, "POLL_S", 0.005)


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """Nothing runs in the background: what seals here is the test."""
    async with running_world(settings, clock, has_sealer=False) as quiet:
        yield quiet


@dataclass
class Event:
    """One event, as a browser takes the stream apart (HTML, 9.2.6)."""

    name: str
    data: str
    id: str


class Stream:
    """A stream that is read event by event."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._text = ""
        self.id = ""

    async def next(self) -> Event:
        """The next event that the page would be told of."""
        async with asyncio.timeout(PATIENCE_S):
            while not (event := self._parse(await self._block())).data:
                pass
        return event

    async def heartbeat(self) -> str:
        """The next block that is no event."""
        async with asyncio.timeout(PATIENCE_S):
            while not (block := await self._block()).startswith(":"):
                pass
        self._parse(block)
        return block

    async def ids(self, count: int) -> list[str]:
        """The rows of the next `count` events."""
        return [Page(f"<table>{(await self.next()).data}</table>").row_ids[0] for _ in range(count)]

    async def _block(self) -> str:
        while "\n\n" not in self._text:
            piece = await self._connection.receive()
            assert piece, "the stream ended"
            self._text += piece.decode()
        block, _, self._text = self._text.partition("\n\n")
        return block

    def _parse(self, block: str) -> Event:
        event = Event("message", "", "")
        data = []
        for line in block.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            field, _, value = line.partition(": ")
            if field == "event":
                event.name = value
            elif field == "data":
                data.append(value)
            elif field == "id":
                self.id = value
        event.data, event.id = "\n".join(data), self.id
        return event


@asynccontextmanager
async def watching(
    world: World, query: str = "", who: str = "auditor", **headers: str
) -> AsyncIterator[Stream]:
    """The stream as a member's browser reads it; leaving the block leaves the stream."""
    path = query if query.startswith("/") else LIVE + query
    headers = (world.session(who) if who else {}) | headers
    async with world.client.request(path, headers=headers) as connection:
        await connection.send_complete()
        stream = Stream(connection)
        first = (await connection.receive()).decode()
        assert connection.status_code == 200, first
        assert first.startswith("retry: ")
        yield stream
        await connection.disconnect()


async def refusal_of(world: World, query: str = "", **headers: str) -> tuple[int, str]:
    """Status and text of the refusal of a stream."""
    headers = world.session("auditor") | headers
    async with world.client.request(LIVE + query, headers=headers) as connection:
        await connection.send_complete()
        connection.response_data += await connection.receive()
        assert connection.status_code != 200, "the stream began"
    return await refused(await connection.as_response())


async def seq_now(world: World) -> int:
    return await world.services.store.last_seq()


# Rows


async def test_a_row_arrives_as_the_page_shows_it(world):
    await add_install(world, package_name="before")
    page = await open_page(world)
    async with watching(world, page.live) as stream:
        await add_install(world, BLOCK, package_name="left-pad", actor_source="oidc_github")
        event = await stream.next()
    (shown, *_) = (await open_page(world)).all("tr", **{"class": "blocked"})
    arrived = Page(f"<table>{event.data}</table>").one("tr", **{"class": "blocked"})

    assert event.name == "row"
    assert arrived == shown
    assert "Blocked: denied, BLOCKED" in arrived.text
    assert "GitHub" in arrived.text


async def test_what_came_in_while_the_page_was_on_its_way_is_not_lost(world):
    """The page says up to where it has seen; the stream begins there."""
    page = await open_page(world)
    await add_install(world, package_name="between")
    async with watching(world, page.live) as stream:
        assert "between" in (await stream.next()).data


async def test_nothing_is_missed_once_the_stream_has_begun(world, monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.1)
    async with watching(world) as stream:
        await add_install(world, package_name="at once")
        assert "at once" in (await stream.next()).data


async def test_only_rows_that_match_the_filters_arrive(world):
    page = await open_page(world, "?package=left*&package=!leftover&decision=ALLOWED&last=24h")
    async with watching(world, page.live) as stream:
        await add_install(world, package_name="leftover")
        await add_install(world, BLOCK, package_name="left-pad")
        await add_install(world, package_name="right-pad")
        await add_install(world, package_name="left-hand")
        event = await stream.next()

    assert "left-hand" in event.data
    assert "/audit/aud_" in event.data


async def test_another_organisations_rows_never_arrive(world):
    async with watching(world, "/admin/ui/orgs/other/audit/live", "stranger") as stream:
        await add_install(world, package_name="acmes")
        await world.create()
        async with world.services.store.write() as work:
            other = await work.session.merge(world.other)
            await set_tier(work, other, "team", BY_OPERATOR)
        event = await stream.next()

    assert "Tier changed" in event.data
    assert world.acme.id not in event.data


async def test_rows_past_retention_do_not_arrive(world):
    """Whatever comes in late is held to the floor of now."""
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    await add_install(world, package_name="bygone")
    world.clock.advance(days=7, seconds=1)
    async with watching(world, "?after=0&event=install_allowed", "", **world.admin) as stream:
        await add_install(world, package_name="present")
        event = await stream.next()

    assert "present" in event.data


async def test_sealed_rows_arrive_like_others(world):
    """Between two looks rows may move from the journal into a file."""
    seen = await seq_now(world)
    for number in range(3):
        await add_install(world, package_name=f"p{number}")
    await world.services.sealer.seal_due(everything=True)
    await add_install(world, package_name="p3")
    async with watching(world, f"?after={seen}") as stream:
        names = [
            next(name for name in ("p0", "p1", "p2", "p3") if f">{name}<" in event.data)
            for event in [await stream.next() for _ in range(4)]
        ]

    assert names == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize("column", ["package_name", "actor", "subject", "version"])
async def test_a_hostile_value_is_text_and_ends_no_event(world, column):
    """A line of an event ends with CR, too: a value could go on as a field of its own."""
    async with watching(world) as stream:
        await add_install(world, **{column: HOSTILE})
        event = await stream.next()
        await add_install(world, package_name="next")
        following = await stream.next()

    assert event.name == following.name == "row"
    assert "<script" not in event.data
    assert "event: ended" in event.data
    assert "next" in following.data


# Coming back


async def test_who_comes_back_gets_what_they_missed_and_nothing_twice(world):
    """By the header that browsers send of themselves, which is later than the address."""
    seen = await seq_now(world)
    for number in range(4):
        await add_install(world, package_name=f"p{number}")
    everything = [entry["id"] for entry in reversed(await world.audit(event="install_allowed"))]
    async with watching(world, f"?after={seen}") as stream:
        first = await stream.ids(2)
        last_id = stream.id
    await add_install(world, package_name="p4")
    everything.append((await world.audit(event="install_allowed"))[0]["id"])
    async with watching(world, f"?after={seen}", **{"last-event-id": last_id}) as stream:
        second = await stream.ids(3)

    assert first + second == everything


async def test_a_heartbeat_says_how_far_has_been_looked(world, monkeypatch):
    """A client that reconnects is not sent it all again."""
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.02)
    async with watching(world, "?package=nothing-of-this-name") as stream:
        await add_install(world)
        newest = await seq_now(world)
        async with asyncio.timeout(PATIENCE_S):
            while stream.id != str(newest):
                assert (await stream.heartbeat()).startswith(":")


async def test_an_id_from_before_a_restore_does_not_wait_forever(world):
    """Of a backup, the newest rows may be older than what a page has seen."""
    async with watching(world, "?after=999999999999") as stream:
        await add_install(world, package_name="after all")
        assert "after all" in (await stream.next()).data


@pytest.mark.parametrize("seq", ["-1", "x", "1.5", "9" * 19, "%D9%A3"])
@pytest.mark.asyncio(loop_scope="module")
async def test_an_id_that_is_none_is_refused(shared_world, seq):
    refusal = (400, "after must be the id of an event")

    assert await refusal_of(shared_world, f"?after={seq}") == refusal
    if "%" not in seq:
        assert await refusal_of(shared_world, **{"last-event-id": seq}) == refusal


@pytest.mark.parametrize("query", ["order=asc", "until=2027-01-01", "cursor=x"])
async def test_a_page_on_top_of_which_nothing_belongs_is_not_live(world, query):
    assert await refusal_of(world, f"?{query}") == (
        400,
        "live rows need the order newest first, without until and cursor",
    )
    if query != "cursor=x":
        assert "data-live=" not in (await open_page(world, f"?{query}")).html


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("pakage=x", "unknown query parameter: pakage"),
        (
            "last=2y",
            "last must be a number of minutes, hours, days or weeks, such as 90m, 24h or 7d",
        ),
        ("package=!", "package must not be empty"),
        ("decision=BLOKED", "decision must be one of ALLOWED, BLOCKED, not 'BLOKED'"),
    ],
)
async def test_a_query_that_means_nothing_is_refused(world, query, said):
    assert await refusal_of(world, f"?{query}") == (400, said)


# Many rows


async def test_a_flood_is_said_and_not_sent(world, monkeypatch):
    """A page that is flooded cannot be read; the stream goes on behind it."""
    monkeypatch.setattr(live, "AT_ONCE_MAX", 2)
    seen = await seq_now(world)
    for number in range(3):
        await add_install(world, package_name=f"p{number}")
    async with watching(world, f"?after={seen}") as stream:
        event = await stream.next()
        await add_install(world, package_name="p3")
        following = await stream.next()

    assert (event.name, event.data) == ("more", "2")
    assert int(event.id) == seen + 3
    assert "p3" in following.data


async def test_rows_that_take_too_long_are_said_to_be_more(world, monkeypatch):
    async def fail(*_: object) -> None:
        raise QueryTooSlow

    monkeypatch.setattr(TenantLog, "accepted_after", fail)
    async with watching(world) as stream:
        await add_install(world)
        assert (await stream.next()).name == "more"


async def test_a_look_without_news_reads_no_rows(world, monkeypatch):
    """A page that is left open costs next to nothing."""
    asked = []
    monkeypatch.setattr(type(world.services.store), "snapshot", lambda *_: asked.append(1))
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.02)
    async with watching(world) as stream:
        for _ in range(3):
            await stream.heartbeat()

    assert asked == []


# Who may watch


async def removed(world: World, member: Member) -> None:
    async with world.services.store.write() as work:
        member = await work.session.merge(member)
        await remove_member(work, await work.session.merge(world.acme), member, BY_OPERATOR)


async def demoted(world: World, member: Member) -> None:
    async with world.services.store.write() as work:
        member = await work.session.merge(member)
        await set_role(work, await work.session.merge(world.acme), member, "member", BY_OPERATOR)


async def signed_out(world: World, member: Member) -> None:
    async with world.services.store.write() as work:
        await revoke_sessions(work.session, member.id, work.now)


async def idle(world: World, member: Member) -> None:
    world.clock.advance(seconds=world.services.settings.session_idle_s)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (removed, "Your session has ended"),
        (signed_out, "Your session has ended"),
        (idle, "Your session has ended"),
        (demoted, "You no longer have access to the audit log"),
    ],
)
async def test_a_stream_ends_with_the_session_or_the_right_that_it_was_opened_with(
    world, monkeypatch, loss, said
):
    monkeypatch.setattr(live, "CHECK_S", 0.02)
    async with watching(world) as stream:
        await loss(world, world.members["auditor"])
        event = await stream.next()
        while event.name == "row":  # what was sent before the next check
            event = await stream.next()

    assert event.name == "ended"
    assert said in event.data


async def test_watching_is_no_use_of_a_session(world, monkeypatch):
    """A page that was left open must not keep a member signed in."""
    monkeypatch.setattr(live, "CHECK_S", 0.01)
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.02)
    world.clock.advance(hours=1)
    async with watching(world) as stream:
        await stream.heartbeat()
        await stream.heartbeat()
    async with world.services.store.read() as session:
        watcher = Session.member_id == world.members["auditor"].id
        seen_at = await session.scalar(select(Session.last_seen_at).where(watcher))

    assert seen_at < world.clock.now


async def test_rows_that_cannot_be_read_end_the_stream_and_it_says_so(world, monkeypatch):
    """Silence would look as if nothing happened."""

    async def fail(*_: object) -> None:
        raise StoreFault("a segment is damaged")

    monkeypatch.setattr(TenantLog, "accepted_after", fail)
    async with watching(world) as stream:
        await add_install(world)
        event = await stream.next()

    assert (event.name, event.data) == ("ended", "New rows cannot be read at the moment.")


# How many


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often rows are read and rendered."""
    done: Counter[str] = Counter()
    render, read = live.render_template, TenantLog.accepted_after

    async def rendered(*arguments: Any, **context: Any) -> str:
        done["rendered"] += 1
        return await render(*arguments, **context)

    async def accepted_after(*arguments: Any) -> Any:
        done["read"] += 1
        return await read(*arguments)

    monkeypatch.setattr(live, "render_template", rendered)
    monkeypatch.setattr(TenantLog, "accepted_after", accepted_after)
    return done


async def test_a_row_is_read_and_rendered_once_for_all_streams_of_a_page(world, work):
    """Fifty open pages must not cost fifty times as much as one."""
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(watching(world, who=who))
            for who in ("owner", "admin", "auditor", "auditor")
        ]
        for name in ("one", "two"):
            await add_install(world, package_name=name)
            told = [await stream.next() for stream in streams]
            assert all(event == told[0] and name in event.data for event in told)

    assert work == {"rendered": 2, "read": 2}
    assert world.services.live._shared == {}


async def test_pages_that_show_something_else_share_nothing(world, work):
    async with watching(world, "?package=one") as ones, watching(world, "?package=two") as twos:
        await add_install(world, package_name="one")
        await add_install(world, package_name="two")
        told = [await ones.next(), await twos.next()]

    assert ["one" in told[0].data, "two" in told[1].data] == [True, True]
    assert work["rendered"] == 2


async def test_a_stream_that_fell_behind_what_is_kept_misses_nothing(world, monkeypatch):
    monkeypatch.setattr(live, "EVENTS_MAX", 1)
    before = await seq_now(world)
    async with watching(world) as first:
        for number in range(3):
            await add_install(world, package_name=f"package-{number}")
            await first.next()
        async with watching(world, **{"last-event-id": str(before)}) as late:
            names = [(await late.next()).data for _ in range(3)]

    assert [f"package-{number}" in name for number, name in enumerate(names)] == [True] * 3


async def test_rows_rendered_for_one_organisation_are_bounded(world, monkeypatch):
    """Many pages with filters of their own would otherwise take the event loop's time."""
    monkeypatch.setattr(live, "ROWS_PER_S", 1e-6)
    async with watching(world) as stream:
        await add_install(world)
        event = await stream.next()

    assert event.name == "more"


@pytest.mark.parametrize("query", ["", "?after=0"], ids=["open", "reconnecting"])
async def test_rows_whose_turn_does_not_come_are_sent_later(world, monkeypatch, query):
    """A flood of other queries must not end the stream, nor say that access was lost."""
    read, refusals = TenantLog.accepted_after, [TooManyWaiting(), ServerBusy()]

    async def accepted_after(*arguments: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await read(*arguments)

    monkeypatch.setattr(TenantLog, "accepted_after", accepted_after)
    async with watching(world, query) as stream:
        await add_install(world, package_name="left-pad")
        while "left-pad" not in (event := await stream.next()).data:
            assert event.name == "row"

    assert event.name == "row"


@pytest.mark.parametrize("bound", ["PER_SESSION_MAX", "PER_ORG_MAX"])
async def test_so_many_streams_at_once_and_no_more(world, monkeypatch, bound):
    """Each costs a look a second. One that ends makes room for another, however it ends."""
    monkeypatch.setattr(live, bound, 1)
    async with watching(world):
        assert await refusal_of(world) == (429, TOO_MANY_STREAMS.text)
    for _ in range(2):
        async with watching(world):
            pass


async def test_one_sessions_streams_leave_room_for_anothers(world, monkeypatch):
    monkeypatch.setattr(live, "PER_SESSION_MAX", 1)
    monkeypatch.setattr(live, "PER_ORG_MAX", 2)
    elsewhere = "/admin/ui/orgs/other/audit/live"
    async with (
        watching(world),
        watching(world, "", "owner"),
        watching(world, elsewhere, "stranger"),
    ):
        response = await world.client.get(LIVE, headers=world.session("admin"))
        assert (await refused(response))[0] == 429


async def test_the_end_of_the_server_ends_every_stream(world):
    """Readers reconnect by themselves, to the process that serves then."""
    async with world.client.request(LIVE, headers=world.session("auditor")) as connection:
        await connection.send_complete()
        connection.response_data += await connection.receive()
        world.services.live.end()
    assert connection.status_code == 200


async def test_head_is_refused(world):
    """Its answer has no body, so it would never be seen to end, nor its reader to leave."""
    response = await world.client.head(LIVE, headers=world.session("auditor"))

    assert response.status_code == 405
    assert response.headers["allow"] == "GET"
