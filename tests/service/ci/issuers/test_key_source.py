"""When an issuer's keys are fetched, how long they serve, and who waits."""

import asyncio
from typing import Any

import httpx2
import msgspec
from structlog.testing import capture_logs

from service.ci.issuers.key_source import KeySource
from service.ci.verifier.parsing import parse_token
from service.ci.verifier.signatures import check_signature
from service.core.metrics import Metrics
from tests.conftest import ISSUER
from tests.issuers.issuer import AUDIENCE, Issuer, public_jwk, rsa_key
from tests.service.ci.issuers.sources import (
    DISCOVERY_URL,
    DOWN,
    GITHUB,
    KEYS_URL,
    Answer,
    KeySourceCase,
    Network,
    settled,
)


async def test_the_first_token_waits_for_the_keys(desk):
    token = parse_token(desk.issuer.sign())
    keys = await desk.source.keys_for(GITHUB, "first")

    assert check_signature(token, GITHUB.algorithms, keys).members["aud"] == AUDIENCE
    assert keys.fault is None
    assert desk.issuer.requests == [DISCOVERY_URL, KEYS_URL]


async def test_a_configured_jwks_uri_needs_no_discovery(clock):
    network, metrics = Network(), Metrics()
    issuer = msgspec.structs.replace(GITHUB, jwks_uri=KEYS_URL)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(network.answer)) as http:
        source = KeySource({ISSUER: issuer}, http, clock, metrics)
        keys = await source.keys_for(issuer, "first")

    assert list(keys.by_kid) == ["first"]
    assert network.issuer.requests == [KEYS_URL]


async def test_a_token_that_no_key_would_help_costs_no_request(desk):
    """Otherwise any sender could make this service call the issuer."""
    keys = await desk.source.keys_for(GITHUB, None)

    assert (keys.by_kid, keys.fault) == ({}, "no keys fetched yet")
    assert desk.issuer.requests == []
    await desk.source.refresh_due()
    assert desk.issuer.requests == []


async def test_such_a_token_gets_old_keys_as_they_are(warm):
    warm.clock.advance(hours=1)
    keys = await warm.source.keys_for(GITHUB, None)

    assert list(keys.by_kid) == ["first"]
    assert warm.issuer.requests == []


async def test_cached_keys_are_those_that_are_here(desk):
    """Some callers must not wait, nor cause a request."""
    assert desk.source.cached(GITHUB).by_kid == {}
    await desk.source.warm_up()

    assert list(desk.source.cached(GITHUB).by_kid) == ["first"]
    desk.issuer.requests.clear()
    desk.clock.advance(hours=23, minutes=59)
    assert list(desk.source.cached(GITHUB).by_kid) == ["first"]
    desk.clock.advance(minutes=1)
    assert desk.source.cached(GITHUB).by_kid == {}
    assert desk.issuer.requests == []


async def test_fresh_keys_are_not_fetched_again(warm):
    warm.clock.advance(minutes=9, seconds=59)

    assert await warm.kids() == ["first"]
    assert warm.issuer.requests == []


async def test_after_ten_minutes_a_token_waits_for_newer_keys(warm):
    """A key the issuer has withdrawn must not verify for long."""
    warm.issuer.key = rsa_key("second")
    warm.issuer.publish(warm.issuer.key)
    assert await warm.kids() == ["first"]

    warm.clock.advance(minutes=10)

    assert await warm.kids() == ["second"]
    assert warm.network.fetches == 1
    assert await warm.kids("second") == ["second"]
    assert warm.network.fetches == 1


async def test_a_clock_set_back_does_not_keep_keys_for_longer(warm):
    """Their age is a distance, whichever way the clock moved."""
    warm.clock.advance(hours=-5)

    assert await warm.kids() == ["first"]
    assert warm.network.fetches == 1


async def test_keys_in_use_are_renewed_before_a_request_waits(warm):
    await warm.kids()
    warm.clock.advance(minutes=7, seconds=59)
    await warm.source.refresh_due()
    assert warm.network.fetches == 0

    warm.clock.advance(seconds=1)
    await warm.source.refresh_due()
    await warm.source.refresh_due()
    assert warm.network.fetches == 1

    warm.clock.advance(minutes=9)
    await warm.kids()
    assert warm.network.fetches == 1


async def test_unused_keys_are_not_renewed(warm):
    warm.clock.advance(hours=2)
    await warm.source.refresh_due()

    assert warm.network.fetches == 0


async def test_a_failed_renewal_in_the_background_waits_before_the_next(warm):
    await warm.kids()
    warm.network.go_down()
    warm.clock.advance(minutes=8)
    await warm.source.refresh_due()
    warm.clock.advance(seconds=29)
    await warm.source.refresh_due()
    assert warm.network.fetches == 1

    warm.clock.advance(seconds=1)
    await warm.source.refresh_due()
    assert warm.network.fetches == 2


async def test_at_start_all_issuers_are_asked_at_once(clock):
    """One that is down delays no other's keys."""
    other = Issuer("https://ci.example", key=rsa_key("theirs"))
    accepted = msgspec.structs.replace(GITHUB, name="other", url=other.url)
    both_asked = asyncio.Barrier(2)

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("configuration"):
            await both_asked.wait()
        return other.answer(request) if request.url.host == "ci.example" else DOWN

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        source = KeySource({ISSUER: GITHUB, other.url: accepted}, http, clock, Metrics())
        with capture_logs() as logs:
            await source.warm_up()

    assert list(source.cached(accepted).by_kid) == ["theirs"]
    assert source.cached(GITHUB).by_kid == {}
    assert [line["issuer"] for line in logs] == ["github"]


async def test_all_who_wait_share_one_fetch(desk):
    """A thousand jobs begin at nine in the morning."""
    desk.network.gate.clear()
    waiting = [asyncio.create_task(desk.kids()) for _ in range(100)]
    await settled()
    desk.network.gate.set()

    assert await asyncio.gather(*waiting) == [["first"]] * 100
    assert desk.network.fetches == 1


async def test_who_stops_waiting_does_not_stop_the_others(desk):
    desk.network.gate.clear()
    began, waits = asyncio.create_task(desk.kids()), asyncio.create_task(desk.kids())
    await settled()
    began.cancel()
    await settled()
    assert began.cancelled()
    desk.network.gate.set()

    assert await waits == ["first"]
    assert desk.network.fetches == 1


async def test_closing_ends_what_is_under_way(desk):
    desk.network.gate.clear()
    waits = asyncio.create_task(desk.kids())
    await settled()

    await desk.source.close()

    assert await waits == []
    desk.network.gate.set()
    assert await desk.kids() == []
    assert desk.network.fetches == 1


async def test_a_new_key_is_fetched_when_its_first_token_comes(warm):
    warm.issuer.rotate("second")

    assert await warm.kids("second") == ["second", "first"]
    assert warm.network.fetches == 1


async def test_random_kids_cause_one_fetch_a_minute_and_good_keys_stay(warm):
    for index in range(500):
        assert await warm.kids(f"random-{index}") == ["first"]
    assert warm.network.fetches == 1
    warm.clock.advance(seconds=59)
    await asyncio.gather(*(warm.kids(f"more-{index}") for index in range(500)))
    assert warm.network.fetches == 1

    warm.clock.advance(seconds=1)
    await asyncio.gather(*(warm.kids(f"others-{index}") for index in range(500)))
    assert warm.network.fetches == 2


async def test_a_cold_source_fetches_once_for_a_random_kid(desk):
    """What was fetched for it cannot be newer a moment later."""
    assert await desk.kids("random") == ["first"]
    assert desk.network.fetches == 1


async def test_a_failed_fetch_for_a_random_kid_keeps_the_good_keys(warm):
    warm.network.go_down()

    keys = await warm.source.keys_for(GITHUB, "random")
    assert list(keys.by_kid) == ["first"]
    assert keys.fault == "/.well-known/openid-configuration answered 503"
    assert await warm.kids() == ["first"]
    assert await warm.kids("random") == ["first"]
    assert warm.network.fetches == 1


async def test_a_kid_whose_key_is_refused_causes_no_fetch(warm):
    enc = public_jwk(rsa_key("second"), use="enc")
    warm.issuer.jwks = {"keys": [*warm.issuer.jwks["keys"], enc]}
    warm.clock.advance(minutes=10)
    await warm.kids()
    assert warm.network.fetches == 1

    keys = await warm.source.keys_for(GITHUB, "second")

    assert keys.refused == {"second": "key 'second' may not verify: its use is not sig"}
    assert warm.network.fetches == 1


async def test_a_key_published_during_a_fetch_is_fetched_after_it(warm):
    """The answer in flight may be older than the key."""
    warm.clock.advance(minutes=10)
    warm.network.gate.clear()
    old = asyncio.create_task(warm.kids("first"))
    await settled()
    warm.network.wrong = _once_more_then(warm, warm.issuer.jwks)
    new = asyncio.create_task(warm.kids("second"))
    warm.issuer.rotate("second")
    await settled()
    warm.network.gate.set()

    assert await old == ["first"]
    assert await new == ["second", "first"]
    assert warm.network.fetches == 2


def _once_more_then(desk: KeySourceCase, jwks: dict[str, Any]) -> Answer:
    """Answers whose first key set is `jwks`, as it was."""
    left = [jwks]

    def answer(request: httpx2.Request) -> httpx2.Response:
        if str(request.url) == KEYS_URL and left:
            return httpx2.Response(200, json=left.pop())
        return desk.issuer.answer(request)

    return answer
