"""An issuer that is down: what serves meanwhile, who waits, and what can be seen of it."""

import asyncio

from structlog.testing import capture_logs

from tests.service.ci.issuers.sources import DISCOVERY_URL, GITHUB, configuration, document, settled


async def test_without_keys_an_outage_is_named_and_not_asked_about_again_at_once(desk):
    desk.network.go_down()
    assert await desk.fault() == "/.well-known/openid-configuration answered 503"
    desk.clock.advance(seconds=29)
    assert await desk.fault() == "/.well-known/openid-configuration answered 503"
    assert desk.network.fetches == 1

    desk.network.come_back()
    desk.clock.advance(seconds=1)
    assert await desk.kids() == ["first"]
    assert await desk.fault() is None


async def test_in_an_outage_old_keys_serve_for_a_day(warm):
    """CI does not stop with its issuer's key server."""
    warm.network.go_down()
    warm.clock.advance(minutes=10)
    keys = await warm.source.keys_for(GITHUB, "first")
    assert list(keys.by_kid) == ["first"]
    assert keys.fault == "/.well-known/openid-configuration answered 503"

    warm.clock.advance(hours=23, minutes=49, seconds=59)
    assert await warm.kids() == ["first"]
    await settled()

    warm.clock.advance(seconds=1)
    assert await warm.kids() == []


async def test_in_an_outage_no_request_waits_a_second_time(warm):
    """Each would lose five seconds; a try in the background finds the end of the outage."""
    warm.network.go_down()
    warm.clock.advance(minutes=10)
    assert await warm.kids() == ["first"]
    warm.network.gate.clear()

    warm.clock.advance(seconds=29)
    assert await asyncio.wait_for(warm.kids(), 5) == ["first"]
    await settled()
    assert warm.network.fetches == 1

    warm.clock.advance(seconds=1)
    assert await asyncio.wait_for(warm.kids(), 5) == ["first"]
    assert await asyncio.wait_for(warm.kids("random"), 5) == ["first"]
    await settled()
    assert warm.network.fetches == 2

    warm.network.come_back()
    warm.issuer.rotate("second")
    warm.network.gate.set()
    await settled()
    warm.clock.advance(seconds=30)
    await warm.kids()
    await settled()
    assert await warm.kids() == ["second", "first"]
    assert await warm.fault() is None


async def test_every_failure_is_one_line_and_is_counted(desk):
    desk.network.wrong = document(DISCOVERY_URL, configuration(issuer="x" * 5000))
    with capture_logs() as logs:
        await desk.fault()
        await desk.fault()
        desk.clock.advance(seconds=30)
        desk.network.come_back()
        await desk.kids()

    (line,) = logs
    assert (line["event"], line["log_level"]) == ("issuer_keys_unavailable", "warning")
    assert line["issuer"] == "github"
    assert line["reason"].startswith("the configuration is that of 'xxx")
    assert len(line["reason"]) == 200
    assert desk.sampled() == {
        "key_fetches_total": 2,
        "key_fetch_failures_total": 1,
        "keys_fetched_timestamp_seconds": desk.clock().timestamp(),
    }


async def test_the_metrics_say_when_keys_were_fetched(desk):
    """An alert on their age must see an issuer that has none at all, from the start."""
    assert desk.sampled() == {
        "key_fetches_total": 0,
        "key_fetch_failures_total": 0,
        "keys_fetched_timestamp_seconds": 0,
    }
    await desk.source.warm_up()
    fetched_at = desk.clock().timestamp()
    desk.clock.advance(minutes=42)

    assert desk.sampled()["keys_fetched_timestamp_seconds"] == fetched_at
