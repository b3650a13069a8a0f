"""Requests take the event loop step by step; heavy organisations let light ones go first."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

import pytest
from quart import Quart, Response

from service.app import hypercorn_server
from service.app.hypercorn_server import ServerConfig, serve
from service.core.header_names import ADMIN_TOKEN_HEADER
from service.core.loop_turns import (
    BESIDE_S,
    CURRENT,
    FADE_S,
    HOLD_S,
    LIGHT_S,
    LoopTurns,
    RequestTurns,
    Stepwise,
    assign_to,
)
from service.web.turns import credentials_of, in_turns
from tests.conftest import running_world
from tests.polling import HANG_S, until

STEP_S = 0.001
HEAVY_S = 1.0


def waiting_in(turns: LoopTurns) -> int:
    """How many steps wait."""
    return sum(len(share.waiting) for share in turns._shares.values())


@dataclass
class Loop:
    """Requests with steps of given lengths, by a clock that only they move."""

    now: float = 100.0
    ran: list[str] = field(default_factory=list)
    """The organisations of the steps, in the order in which they ran."""

    used: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = LoopTurns(lambda tenant_id, used_s: self.used.append((tenant_id, used_s)))
        self.turns.clock = lambda: self.now

    def step(self, tenant_id: str, seconds: float = STEP_S) -> None:
        self.ran.append(tenant_id)
        self.now += seconds

    def start(self, tenant_id: str, steps: int) -> asyncio.Task[None]:
        """A request with so many steps, of which each is ready as soon as the last has run."""

        async def work() -> None:
            for _ in range(steps):
                self.step(tenant_id)
                await asyncio.sleep(0)

        return self.run(tenant_id, work)

    def run(self, tenant_id: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """A request that does `work` once it is known whose it is."""

        async def known() -> None:
            await assign_to(tenant_id)
            await work()

        async def request() -> None:
            turns = RequestTurns(self.turns, "192.0.2.1")
            CURRENT.set(turns)
            try:
                await Stepwise(self.turns, turns, known())
            finally:
                turns.end()

        return asyncio.create_task(request())

    async def use(self, tenant_id: str, seconds: float) -> None:
        """One request whose only step takes so long."""

        async def work() -> None:
            self.step(tenant_id, seconds)

        await self.run(tenant_id, work)


@pytest.fixture
async def loop():
    return Loop()


@pytest.fixture
async def shared(loop):
    """A loop that `heavy` has used much of, and `light` hardly."""
    await loop.use("heavy", HEAVY_S)
    await loop.use("light", STEP_S)
    loop.ran.clear()
    return loop


@asynccontextmanager
async def served(app: Quart, turns: LoopTurns) -> AsyncIterator[tuple[ServerConfig, int]]:
    """`app` behind a real server in this event loop, and its port."""
    config = ServerConfig()
    config.loop_turns = turns
    config.send_timeout_s = config.head_timeout_s = HANG_S
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config.bind = [f"fd://{listener.detach()}"]
    ends = asyncio.Event()
    serving = asyncio.create_task(serve(app, config, ends.wait, 0.0))
    try:
        yield config, port
    finally:
        ends.set()
        await serving


async def turn_loop(times: int = 50) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_organisation_alone_never_waits(loop):
    """Its steps run in asyncio's own order, however much it has used."""
    await loop.use("heavy", HEAVY_S)
    loop.ran.clear()

    requests = [loop.start("heavy", 4) for _ in range(3)]
    await asyncio.sleep(0)
    first_turn = list(loop.ran)
    await asyncio.gather(*requests)

    assert first_turn == ["heavy"] * 3
    assert len(loop.ran) == 12
    assert waiting_in(loop.turns) == 0


async def test_a_light_request_waits_for_at_most_one_step_of_a_heavy_one_at_each_of_its_own(shared):
    heavy = [shared.start("heavy", 100) for _ in range(16)]
    await turn_loop(5)
    shared.ran.clear()

    await shared.start("light", 5)

    assert shared.ran.count("light") == 5
    assert shared.ran.count("heavy") <= 5
    await stop(*heavy)


async def test_of_heavy_requests_one_step_runs_in_each_turn_of_the_loop(shared):
    heavy = [shared.start("heavy", 20) for _ in range(8)]
    most = before = 0
    for _ in range(40):
        await asyncio.sleep(0)
        most, before = max(most, len(shared.ran) - before), len(shared.ran)

    assert len(shared.ran) > 10
    assert most == 1
    await stop(*heavy)


async def test_heavy_steps_are_held_until_a_light_request_continues(shared):
    """For HOLD_S at most: what it waits for may take long."""
    answer = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        shared.step("light")
        await answer
        shared.step("light")

    light = shared.run("light", wait)
    heavy = shared.start("heavy", 1)
    await turn_loop()
    assert shared.ran == ["light"]

    shared.now += HOLD_S
    await heavy

    assert shared.ran == ["light", "heavy"]
    answer.set_result(None)
    await light


async def test_nothing_is_held_for_a_request_that_has_ended(shared):
    heavy = shared.start("heavy", 3)

    await shared.start("light", 2)
    await heavy

    assert shared.ran.count("heavy") == 3


async def test_what_was_held_for_an_open_stream_holds_nothing_later(shared):
    """Otherwise light requests would hold heavy ones for all of HOLD_S while a stream is open."""
    shared.turns.hold("stream")
    shared.now += HOLD_S
    shared.turns.hold("request")
    heavy = shared.start("heavy", 1)
    await turn_loop()
    assert shared.ran == []

    shared.turns.release("request")
    await heavy

    assert shared.ran == ["heavy"]
    assert len(shared.turns._held_until) == 0


async def test_a_heavy_organisation_keeps_its_quarter_of_the_loop(shared):
    heavy = shared.start("heavy", 1)
    while not heavy.done():
        await shared.start("light", 1)
        shared.now += HOLD_S / 2
        assert shared.now < 100 + HEAVY_S + 3 * FADE_S
    assert shared.ran.count("heavy") == 1


async def test_of_two_heavy_organisations_the_one_that_used_less_goes_first(shared):
    shared.now += 10 * FADE_S
    await shared.use("heavier", HEAVY_S)
    await shared.use("heavy", 2 * LIGHT_S)
    shared.ran.clear()

    requests = [shared.start(tenant_id, 2) for tenant_id in ("heavier", "heavy")]
    await asyncio.gather(*requests)

    assert shared.ran == ["heavy", "heavier", "heavy", "heavier"]


async def test_heavy_steps_wait_no_more_once_the_others_are_gone(shared):
    await shared.use("heavy", LIGHT_S)
    assert not shared.turns.may_run("heavy")
    shared.now += BESIDE_S
    await shared.use("heavy", HEAVY_S)
    shared.ran.clear()

    requests = [shared.start("heavy", 1) for _ in range(4)]
    await asyncio.sleep(0)

    assert shared.ran == ["heavy"] * 4
    await asyncio.gather(*requests)


async def test_a_request_that_is_cancelled_while_it_waits_leaves(shared):
    async def work() -> None:
        shared.step("heavy")

    held = shared.run("light", asyncio.get_running_loop().create_future)
    requests = [shared.run("heavy", work) for _ in range(2)]
    await turn_loop()
    waiting = waiting_in(shared.turns)

    await stop(*requests)

    assert (waiting, waiting_in(shared.turns)) == (2, 0)
    assert [request.cancelled() for request in requests] == [True, True]
    assert shared.ran == []
    await stop(held)


async def test_a_request_that_has_begun_cleans_up_when_it_is_cancelled_while_it_waits(loop):
    """The cancellation is thrown into it, as without turns; its last step waits for no turn."""
    told = []

    async def work() -> None:
        loop.step("heavy", HEAVY_S)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    await loop.use("light", STEP_S)
    request = loop.run("heavy", work)
    await asyncio.sleep(0)
    held = loop.run("light", asyncio.get_running_loop().create_future)
    await turn_loop()
    assert waiting_in(loop.turns) == 1

    await stop(request)

    assert (told, waiting_in(loop.turns)) == (["cancelled"], 0)
    await stop(held)


async def test_a_request_that_catches_its_cancellation_goes_on(shared):
    ended = []

    async def work() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.get_running_loop().create_future()
        ended.append(asyncio.current_task())

    request = shared.run("light", work)
    await request

    assert ended == [request]


async def test_what_a_request_raises_and_returns_is_passed_on(loop):
    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("missing")

    async def answer() -> str:
        await asyncio.sleep(0)
        return "answer"

    request = RequestTurns(loop.turns, None)
    with pytest.raises(LookupError, match="missing"):
        await Stepwise(loop.turns, request, fail())
    assert await Stepwise(loop.turns, request, answer()) == "answer"


async def test_context_variables_are_those_of_the_task(loop):
    variable = ContextVar("variable", default="before")

    async def work() -> None:
        variable.set("set")
        await asyncio.sleep(0)

    await Stepwise(loop.turns, RequestTurns(loop.turns, None), work())

    assert variable.get() == "set"


async def test_what_a_stranger_uses_is_that_of_their_address(loop):
    """Who does not prove to belong to an organisation cannot make it heavy."""
    stranger = RequestTurns(loop.turns, "192.0.2.1")
    stranger.count(HEAVY_S)
    stranger.end()
    await loop.use("light", STEP_S)

    assert not loop.turns.may_run("address 192.0.2.1")
    assert loop.turns.may_run("address 192.0.2.2")
    assert loop.turns.may_run("light")
    assert [tenant_id for tenant_id, _ in loop.used] == ["light"]


async def test_time_used_before_a_request_is_known_is_its_organisations(loop):
    request = RequestTurns(loop.turns, "192.0.2.1")
    request.count(LIGHT_S)
    await request.assign("heavy")
    request.count(LIGHT_S)
    request.end()
    await loop.use("light", STEP_S)

    assert not loop.turns.may_run("heavy")
    assert loop.turns.may_run("address 192.0.2.1")
    assert loop.used[0] == ("heavy", 2 * LIGHT_S)


async def test_organisations_are_forgotten_once_their_time_has_faded(loop):
    for number in range(100):
        await loop.use(f"tenant {number}", HEAVY_S)
    loop.now += 100 * FADE_S

    await loop.use("another", STEP_S)
    await loop.use("light", STEP_S)

    assert len(loop.turns._shares) <= 2


async def test_pieces_of_an_answer_take_turns(shared):
    async def pieces() -> AsyncIterator[str]:
        for piece in ("one", "two"):
            shared.step("heavy")
            yield piece

    async def answer() -> Response:
        await assign_to("heavy")
        return Response(pieces())

    app = Quart(__name__)
    async with app.app_context():
        response = await in_turns(shared.turns, "192.0.2.1", answer())
    assert waiting_in(shared.turns) == 0
    held = shared.run("light", asyncio.get_running_loop().create_future)
    reading = asyncio.create_task(response.get_data(as_text=True))
    await turn_loop()
    assert (waiting_in(shared.turns), shared.ran) == (1, [])

    await stop(held)

    assert await reading == "onetwo"
    assert shared.ran == ["heavy", "heavy"]


async def test_an_answer_that_is_not_read_to_its_end_is_closed(shared):
    closed = []

    async def pieces() -> AsyncIterator[str]:
        try:
            yield "one"
            yield "two"
        finally:
            closed.append("closed")

    async def answer() -> Response:
        await assign_to("heavy")
        return Response(pieces())

    app = Quart(__name__)
    async with app.app_context():
        response = await in_turns(shared.turns, "192.0.2.1", answer())
    async with response.response as body:
        assert await anext(aiter(body)) == "one"
        ended_before = len(shared.used)

    assert closed == ["closed"]
    assert [tenant_id for tenant_id, _ in shared.used[ended_before:]] == ["heavy"]


async def test_a_page_of_another_organisation_is_answered_before_those_of_a_heavy_one(
    settings, clock
):
    async with running_world(settings, clock, has_sealer=False) as world:
        turns, tenant_id = world.services.loop_turns, world.acme.id
        now = turns.clock()
        turns.clock = lambda: now  # nothing is held too long on a slow machine
        answered = []

        async def page(slug: str) -> None:
            response = await world.client.get(
                f"/api/v1/admin/orgs/{slug}/audit", headers=world.admin
            )
            assert response.status_code == 200
            answered.append(slug)

        await page("acme")
        await page("other")
        heavy = RequestTurns(turns, None)
        await heavy.assign(tenant_id)
        heavy.count(HEAVY_S)
        heavy.end()
        answered.clear()

        await asyncio.gather(*(page("acme") for _ in range(8)), page("other"))

        assert answered == ["other"] + ["acme"] * 8
        await until(lambda: waiting_in(turns) == 0)
        work = f'countersign_tenant_work_seconds_total{{tenant="{tenant_id}",work="request"}}'
        assert work in world.services.metrics.exposition().decode()


async def test_credentials_of_a_heavy_organisation_wait_from_their_first_step(shared):
    """Otherwise each of its requests would take all steps that check them at once."""
    before = RequestTurns(shared.turns, "192.0.2.1", 7)
    await before.assign("heavy")
    before.end()
    held = shared.run("light", asyncio.get_running_loop().create_future)
    await turn_loop()

    async def check_credentials() -> None:
        shared.step("heavy")
        await assign_to("heavy")

    requests = [
        asyncio.create_task(in_turns(shared.turns, "192.0.2.1", check_credentials(), credentials))
        for credentials in (7, 8)
    ]
    await turn_loop()

    assert [request.done() for request in requests] == [False, False]
    assert shared.ran == ["heavy"], "only that of unknown credentials has begun"
    assert waiting_in(shared.turns) == 2
    await stop(held, *requests)


async def test_credentials_that_are_not_valid_any_more_are_those_of_a_stranger(loop):
    """So they use up no turns of the organisation to which they belonged."""
    valid = RequestTurns(loop.turns, None, 7)
    await valid.assign("heavy")
    valid.end()
    RequestTurns(loop.turns, None, 7).end()

    revoked = RequestTurns(loop.turns, "192.0.2.1", 7)

    assert (revoked.group, revoked.is_attributed) == ("address 192.0.2.1", False)


@pytest.mark.parametrize(
    ("path", "headers", "is_same"),
    [
        ("/api/v1/admin/orgs/acme/audit/summary", {ADMIN_TOKEN_HEADER: "secret"}, True),
        ("/api/v1/admin/orgs/other/audit", {ADMIN_TOKEN_HEADER: "secret"}, False),
        ("/api/v1/admin/orgs/acme/audit", {ADMIN_TOKEN_HEADER: "another"}, False),
        ("/api/v1/admin/orgs/acme/audit", {"authorization": "secret"}, False),
    ],
)
async def test_credentials_are_told_apart_by_the_organisation_too(path, headers, is_same):
    app = Quart(__name__)
    first = "/api/v1/admin/orgs/acme/audit"
    async with app.test_request_context(first, headers={ADMIN_TOKEN_HEADER: "secret"}) as context:
        known = credentials_of(context.request)
    async with app.test_request_context(path, headers=headers) as context:
        assert (credentials_of(context.request) == known) is is_same
    async with app.test_request_context(first) as context:
        assert credentials_of(context.request) is None


async def test_addresses_are_no_organisations(loop):
    """A health check beside one organisation does not make it share its queries."""
    RequestTurns(loop.turns, "192.0.2.1").end()
    await loop.use("a", STEP_S)
    assert not loop.turns.have_several_tenants()

    await loop.use("b", STEP_S)
    assert loop.turns.have_several_tenants()

    loop.now += BESIDE_S
    assert not loop.turns.have_several_tenants()


async def test_heavy_steps_are_held_from_the_first_byte_of_a_request_to_the_last_of_its_answer(
    shared,
):
    may_answer = asyncio.Event()
    app = Quart(__name__)

    @app.get("/")
    async def answer() -> str:
        await may_answer.wait()
        return "answer"

    async with served(app, shared.turns) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        await until(lambda: len(shared.turns._held_until) == 1)
        heavy = shared.start("heavy", 1)
        await turn_loop()
        assert shared.ran == []

        writer.write(b"host: a\r\n\r\n")
        await turn_loop()
        assert shared.ran == []
        may_answer.set()
        head = await reader.readuntil(b"\r\n\r\n")
        await heavy

        assert head.startswith(b"HTTP/1.1 200")
        assert (shared.ran, len(shared.turns._held_until)) == (["heavy"], 0)
        writer.close()


async def test_nothing_is_held_for_a_connection_that_is_closed(loop, monkeypatch):
    monkeypatch.setattr(hypercorn_server, "LINGER_S", 0.1)
    async with served(Quart(__name__), loop.turns) as (config, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        await until(lambda: len(loop.turns._held_until) == 1)
        # Reset: one that is closed in order still gets an answer, which ends its hold, too.
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()

        await until(lambda: not config.connections)
        assert len(loop.turns._held_until) == 0
