"""A registry is asked within limits, at configured origins only, and is believed little."""

import asyncio
import gzip
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from service.core.origins import parse_registry
from service.packages.proxy.admission import AdmissionLimits, AdmissionQueue
from service.packages.proxy.answers import MEMBERS_MAX, UpstreamLimits, Validators
from service.packages.proxy.circuit_breaker import FAILURES_MAX, OPEN_S, STALL_S, CircuitState
from service.packages.proxy.upstream import REDIRECTS_MAX, Upstream
from service.packages.refusals import (
    RegistryLimited,
    RegistryUnavailable,
    UpstreamFailed,
    UpstreamMissing,
)
from tests.polling import HANG_S, until
from tests.service.packages.proxy.documents import SettableTimer
from tests.service.packages.proxy.registry import Answer, Asked, FakeRegistry, bomb, head

SMALL = UpstreamLimits(
    document_bytes=100_000,
    file_bytes=100_000,
    connect_s=5,
    progress_s=0.2,
    document_s=2,
    file_s=2,
)


def limits_for(answer: Answer) -> UpstreamLimits:
    """Only one of the two times can be reached, however slow the machine is."""
    if answer is not slow:
        return SMALL
    return replace(SMALL, progress_s=HANG_S, document_s=0.5, file_s=0.5)


def upstream_of(
    registry: FakeRegistry, http: httpx2.AsyncClient, *file_origins: str, **limits: Any
) -> Upstream:
    given = UpstreamLimits(**limits) if limits else None
    url = registry.url.replace("://", "://ci:pass@") + "/simple"
    return Upstream(http, parse_registry(url, file_origins), given)


async def received(upstream: Upstream, url: str) -> bytes:
    async with upstream.file(url) as file:
        return b"".join([piece async for piece in file.pieces])


@contextmanager
def expect_failure(reason: str) -> Iterator[pytest.ExceptionInfo[UpstreamFailed]]:
    """The block fails for this reason, which the log has and the client does not."""
    with pytest.raises(UpstreamFailed) as failed:
        yield failed
    assert reason in failed.value.reason
    assert reason not in failed.value.text


async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Say something often enough, forever."""
    writer.write(head(transfer_encoding="chunked"))
    while True:
        writer.write(b"1\r\nx\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Begin, and say nothing more."""
    writer.write(head(content_length="1000") + b"x" * 10)
    await writer.drain()
    await asyncio.sleep(60)


async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Send forever, as fast as it goes."""
    writer.write(head())
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def cut(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """End before the length that was said."""
    writer.write(head(content_length="1000") + b"x" * 999)


async def unfinished(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """End without the last chunk."""
    writer.write(head(transfer_encoding="chunked") + b"3\r\nabc\r\n")


async def no_http(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Something else."""
    writer.write(b"SSH-2.0-secret\r\n")


class TestDocument:
    async def test_it_is_asked_for_and_decompressed(self, registry, http):
        registry.says(
            "/simple/a%2fb/",
            gzip.compress(b'{"name": "a"}'),
            content_encoding="gzip",
            content_type="application/json",
            etag='"1"',
            last_modified="Mon, 01 Jan 2024 00:00:00 GMT",
        )

        document = await upstream_of(registry, http).document("a%2fb/", "application/json")

        assert document is not None
        assert document.body == b'{"name": "a"}'
        assert document.url == f"{registry.url}/simple/a%2fb/"
        assert document.content_type == "application/json"
        assert document.validators == Validators('"1"', "Mon, 01 Jan 2024 00:00:00 GMT")
        (asked,) = registry.asked
        assert asked.headers["accept"] == "application/json"
        assert asked.headers["accept-encoding"] == "gzip"
        assert asked.headers["authorization"] == "Basic Y2k6cGFzcw=="
        assert "if-none-match" not in asked.headers

    async def test_a_known_one_is_asked_for_with_its_validators(self, registry, http):
        registry.says("/simple/a/", status=304)

        known = Validators('W/"1"', "Mon, 01 Jan 2024 00:00:00 GMT")
        assert await upstream_of(registry, http).document("a/", "*/*", known) is None

        assert registry.asked[0].headers["if-none-match"] == 'W/"1"'
        assert registry.asked[0].headers["if-modified-since"] == known.last_modified

    async def test_not_modified_is_no_answer_to_a_plain_request(self, registry, http):
        """There would be nothing to serve."""
        registry.says("/simple/a/", status=304)

        with expect_failure("answered 304"):
            await upstream_of(registry, http).document("a/", "*/*")

    @pytest.mark.parametrize("status", [404, 410])
    async def test_a_missing_one_is_missing(self, registry, http, status):
        registry.says("/simple/a/", b"<script>", status=status)

        with pytest.raises(UpstreamMissing):
            await upstream_of(registry, http).document("a/", "*/*")

    @pytest.mark.parametrize("status", [201, 206, 302, 401, 403, 500, 503])
    async def test_any_other_status_is_a_failure(self, registry, http, status):
        """Upstream's own text is not repeated to the client."""
        registry.says("/simple/a/", b"<script>", status=status)

        with capture_logs() as logs, pytest.raises(UpstreamFailed) as failed:
            await upstream_of(registry, http).document("a/", "*/*")

        assert failed.value.status == 502
        assert failed.value.reason == f"{registry.url}: answered {status}"
        assert "script" not in failed.value.text
        assert [line["event"] for line in logs] == ["upstream_failed"]
        assert "pass" not in str(logs)

    @pytest.mark.parametrize(
        "path", ["../x", "a/../../x", "%2e%2e/x", "/x", "a?b", "a#b", "a\\..\\b", "a b", "é"]
    )
    async def test_no_path_leaves_the_index(self, registry, http, path):
        with pytest.raises(UpstreamMissing):
            await upstream_of(registry, http).document(path, "*/*")

        assert registry.asked == []

    @pytest.mark.parametrize(
        ("body", "coding", "reason"),
        [
            pytest.param(b"x" * 100_001, "identity", "longer than 100000", id="long"),
            pytest.param(bomb(100_001), "gzip", "longer than 100000", id="long-unpacked"),
            pytest.param(bomb(50_000_000), "gzip", "longer than 100000", id="bomb"),
            pytest.param(bomb(1000)[:-1], "gzip", "gzip that ends too early", id="short"),
            pytest.param(bomb(1000) + b"more", "gzip", "not valid gzip", id="trailing"),
            pytest.param(b"no gzip", "gzip", "not valid gzip", id="not-gzip"),
            pytest.param(bomb(10), "gzip, gzip", "content coding", id="twice"),
            pytest.param(b"x", "br", "content coding", id="other"),
        ],
    )
    async def test_a_body_out_of_all_limits_is_a_failure(
        self, registry, http, body, coding, reason
    ):
        registry.says("/simple/a/", body, content_encoding=coding)
        upstream = upstream_of(registry, http, document_bytes=100_000)

        with expect_failure(reason):
            await upstream.document("a/", "*/*")

    async def test_gzip_of_several_members_is_one_document(self, registry, http):
        body = gzip.compress(b"one ") + gzip.compress(b"two")
        registry.says("/simple/a/", body, content_encoding="gzip")

        document = await upstream_of(registry, http).document("a/", "*/*")

        assert document is not None
        assert document.body == b"one two"

    async def test_gzip_of_very_many_members_is_refused(self, registry, http):
        """Each takes the event loop longer than its 20 bytes, and yields nothing to count."""
        empty = gzip.compress(b"")
        registry.says("/simple/a/", empty * (MEMBERS_MAX + 1), content_encoding="gzip")

        with expect_failure(f"is gzip of more than {MEMBERS_MAX} members"):
            await upstream_of(registry, http).document("a/", "*/*")

        registry.says("/simple/a/", empty * MEMBERS_MAX, content_encoding="gzip")
        document = await upstream_of(registry, http).document("a/", "*/*")
        assert document is not None
        assert document.body == b""

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (slow, "not all there within 0.5 s"),
            (silent, "ReadTimeout"),
            (endless, "longer than 100000"),
            (cut, "RemoteProtocolError"),
            (unfinished, "RemoteProtocolError"),
            (no_http, "RemoteProtocolError"),
        ],
    )
    async def test_a_server_that_does_not_end_is_left(self, registry, http, answer, reason):
        registry.does("/simple/a/", answer)
        upstream = Upstream(http, parse_registry(f"{registry.url}/simple/"), limits_for(answer))

        with expect_failure(reason) as failed:
            await upstream.document("a/", "*/*")

        assert "secret" not in failed.value.reason

    async def test_a_server_that_is_not_there_is_a_failure(self, http):
        upstream = Upstream(http, parse_registry("http://ci:pass@127.0.0.1:1/simple/"))

        with expect_failure("ConnectError") as failed:
            await upstream.document("a/", "*/*")

        assert "pass" not in failed.value.reason

    async def test_a_query_is_passed_on_and_its_answer_bounded(self, registry, http):
        registry.says("/simple/-/npm/v1/security/advisories/bulk", b"{}")
        upstream = upstream_of(registry, http)

        answer = await upstream.post(
            "-/npm/v1/security/advisories/bulk", b"[1]", {"content-type": "application/json"}
        )

        assert answer.body == b"{}"
        assert (registry.asked[0].method, registry.asked[0].body) == ("POST", b"[1]")


async def ask(upstream: Upstream, path: str = "a") -> None:
    with suppress(UpstreamFailed, UpstreamMissing):
        await upstream.document(path, "*/*")


def status_of(number: int) -> Answer:
    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(number, content_length="0"))

    return answer


class TestCircuit:
    @pytest.mark.parametrize(
        ("answer", "state"),
        [
            (status_of(500), CircuitState.OPEN),
            (status_of(503), CircuitState.OPEN),
            (cut, CircuitState.OPEN),
            (no_http, CircuitState.OPEN),
            (status_of(404), CircuitState.CLOSED),
            (status_of(403), CircuitState.CLOSED),
            (status_of(429), CircuitState.CLOSED),
        ],
    )
    async def test_failures_of_the_registry_open_it(self, registry, http, answer, state):
        """Not what it says of one package: some refuse single ones with 403."""
        registry.does("/a", answer)
        upstream = Upstream(http, parse_registry(registry.url))
        for _ in range(FAILURES_MAX):
            await ask(upstream)

        assert upstream.state is state

    async def test_nothing_is_asked_while_it_is_open(self, registry, http):
        """It is refused before it waits, and once more when its turn has come."""
        registry.does("/a", status_of(500))
        upstream = Upstream(http, parse_registry(registry.url))
        place = await upstream.admit("acme")
        for _ in range(FAILURES_MAX):
            await ask(upstream)
        with pytest.raises(RegistryUnavailable):
            await upstream.admit("acme")
        with pytest.raises(RegistryUnavailable):
            await upstream.document("a", "*/*")
        place.release()

        assert len(registry.asked) == FAILURES_MAX

    async def test_requests_that_wait_are_refused_when_it_opens(self, registry, http):
        registry.does("/a", status_of(500))
        admission = AdmissionQueue(AdmissionLimits(connections=1))
        upstream = Upstream(http, parse_registry(registry.url), admission=admission)
        with await upstream.admit("acme"):
            waiting = [asyncio.create_task(upstream.admit("acme")) for _ in range(3)]
            await asyncio.sleep(0)
            for _ in range(FAILURES_MAX):
                await ask(upstream)
            ended = await asyncio.gather(*waiting, return_exceptions=True)

        assert [type(error) for error in ended] == [RegistryUnavailable] * 3
        assert (admission.under_way, admission.waiting) == (0, 0)

    async def test_each_origin_has_its_own(self, registry, elsewhere, http):
        """Files can be downloaded from another host than the one that documents come from."""
        registry.does("/a", status_of(500))
        elsewhere.says("/a.whl", b"file")
        upstream = Upstream(http, parse_registry(registry.url, (elsewhere.url,)))
        for _ in range(FAILURES_MAX):
            await ask(upstream)

        admitted = await upstream.admit_file(f"{elsewhere.url}/a.whl", "acme")
        async with admitted.stream() as file:
            assert b"".join([piece async for piece in file.pieces]) == b"file"
        assert upstream.state is CircuitState.OPEN

    async def test_a_request_that_is_cancelled_is_no_failure(self, registry, http):
        registry.does("/a", silent)
        upstream = Upstream(http, parse_registry(registry.url))
        for _ in range(2 * FAILURES_MAX):
            asked = len(registry.asked)
            task = asyncio.create_task(ask(upstream))
            await until(lambda asked=asked: len(registry.asked) > asked)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        assert upstream.state is CircuitState.CLOSED

    async def test_a_query_is_not_waited_for_when_the_registry_is_suspect(self, registry, http):
        """As npm's audit, which every install ends with."""
        registry.does("/audit", silent)
        timer = SettableTimer()
        limits = UpstreamLimits(query_s=0.05)
        upstream = Upstream(http, parse_registry(registry.url), limits, timer=timer)
        upstream.circuits[upstream.registry.origin].begin()
        timer.now += STALL_S

        with expect_failure("not all there within 0.05 s"):
            await upstream.post("audit", b"{}", {})

    async def test_changes_are_logged_once_and_counted(self, registry, http):
        changes: list[tuple[str, bool]] = []
        timer = SettableTimer()
        registry.does("/a", status_of(500))
        upstream = Upstream(
            http,
            parse_registry(registry.url),
            timer=timer,
            observe_circuit=lambda origin, is_open: changes.append((origin, is_open)),
        )
        with capture_logs() as logs:
            for _ in range(2 * FAILURES_MAX):
                await ask(upstream)
            timer.now += OPEN_S
            registry.says("/a", b"")
            await ask(upstream)

        assert changes == [(registry.url, True), (registry.url, False)]
        events = [line["event"] for line in logs]
        assert events.count("registry_not_asked") == events.count("registry_answers_again") == 1


class TestLimits:
    """A registry that refuses further requests with 429."""

    @pytest.mark.parametrize(
        ("said", "passed_on"),
        [({}, 5), ({"retry_after": "7"}, 7), ({"retry_after": "0"}, 1)]
        + [({"retry_after": text}, 5) for text in ("soon", "-1", "1" * 5000)]
        + [({"retry_after": "86400"}, 60)],
    )
    async def test_its_retry_after_is_passed_on_within_limits(
        self, registry, http, said, passed_on
    ):
        registry.says("/a", b"<script>", status=429, **said)
        with pytest.raises(RegistryLimited) as limited:
            await Upstream(http, parse_registry(registry.url)).document("a", "*/*")

        assert (limited.value.status, limited.value.retry_after_s) == (429, passed_on)
        assert "script" not in limited.value.text

    async def test_only_the_organisation_that_asked_most_is_not_asked_for(self, registry, http):
        registry.does("/a", status_of(429))
        registry.says("/b", b"")
        upstream = Upstream(http, parse_registry(registry.url))
        for _ in range(FAILURES_MAX + 1):
            with await upstream.admit("many"):
                pass
        with await upstream.admit("few"), pytest.raises(RegistryLimited):
            await upstream.document("a", "*/*")

        with pytest.raises(RegistryLimited):
            await upstream.admit("many")
        assert upstream.try_admit("many") is None
        with await upstream.admit("few"):
            assert await upstream.document("b", "*/*") is not None


class TestConnections:
    async def test_one_that_broke_before_a_response_is_replaced(self, registry, http):
        """Servers close idle connections, also while we begin to use one."""

        async def close(asked: Asked, writer: asyncio.StreamWriter) -> None:
            registry.says("/simple/a/", b"here")

        registry.does("/simple/a/", close)

        document = await upstream_of(registry, http).document("a/", "*/*")

        assert document is not None
        assert document.body == b"here"

    async def test_one_that_always_breaks_is_tried_twice(self, registry, http):
        async def close(asked: Asked, writer: asyncio.StreamWriter) -> None:
            """Say nothing."""

        registry.does("/simple/a/", close)
        with expect_failure("RemoteProtocolError"):
            await upstream_of(registry, http).document("a/", "*/*")

        assert registry.times("/simple/a/") == 2

    async def test_what_became_of_requests_is_known(self, registry, http, clock):
        """A page shows it; metrics have how long an answer takes."""
        seconds: list[float] = []
        upstream = Upstream(http, parse_registry(registry.url), clock=clock, observe=seconds.append)
        registry.says("/a", b"")
        await upstream.document("a", "*/*")
        clock.advance(minutes=1)
        with pytest.raises(UpstreamMissing):
            await upstream.document("b", "*/*")
        answered_at = clock.now
        clock.advance(minutes=1)
        registry.says("/a", status=500)
        with expect_failure("answered 500"):
            await upstream.document("a", "*/*")

        health = upstream.health
        assert (health.answered_at, health.failed_at) == (answered_at, clock.now)
        assert health.failure == f"{registry.url}: answered 500"
        assert len(seconds) == 3


class TestRedirects:
    async def test_within_the_origin_they_are_followed(self, registry, http):
        registry.says("/simple/A/", status=301, location="/simple/a/")
        registry.says("/simple/a/", b"here")

        document = await upstream_of(registry, http).document("A/", "*/*")

        assert document is not None
        assert (document.body, document.url) == (b"here", f"{registry.url}/simple/a/")
        assert "authorization" in registry.asked[1].headers

    async def test_a_configured_origin_gets_no_credentials(self, registry, elsewhere, http):
        registry.says("/simple/a/", status=302, location=f"{elsewhere.url}/a?signature=1")
        elsewhere.says("/a?signature=1", b"here")

        document = await upstream_of(registry, http, elsewhere.url).document("a/", "*/*")

        assert document is not None
        assert document.body == b"here"
        assert "authorization" not in elsewhere.asked[0].headers

    @pytest.mark.parametrize(
        "location",
        [
            "{elsewhere}/a",
            "//{authority}/a",
            "https://{own}/a",
            "http://user@{own}/a",
            "file:///etc/passwd",
            "http://[",
            "http://127.0.0.1.example/a",
        ],
        ids=["other", "relative", "https", "userinfo", "file", "no-url", "suffix"],
    )
    async def test_any_other_origin_is_not_asked(self, registry, elsewhere, http, location):
        """A registry must not direct us to services inside this network."""
        target = location.format(
            elsewhere=elsewhere.url,
            authority=elsewhere.url.removeprefix("http://"),
            own=registry.url.removeprefix("http://"),
        )
        registry.says("/simple/a/", status=302, location=target)

        with pytest.raises(UpstreamFailed):
            await upstream_of(registry, http).document("a/", "*/*")

        assert elsewhere.asked == []
        assert {asked.path for asked in registry.asked} == {"/simple/a/"}

    async def test_a_circle_ends(self, registry, http):
        registry.says("/simple/a/", status=302, location="/simple/a/")

        with expect_failure("redirected more than 5 times"):
            await upstream_of(registry, http).document("a/", "*/*")

        assert len(registry.asked) == REDIRECTS_MAX + 1

    async def test_a_post_is_not_redirected(self, registry, http):
        registry.says("/simple/a", status=307, location="/simple/b")

        with expect_failure("answered 307"):
            await upstream_of(registry, http).post("a", b"", {})


class TestFile:
    async def test_its_bytes_are_those_the_registry_stores(self, registry, http):
        """A .tgz that is labelled as gzip stays one: the digest is of its bytes."""
        registry.says("/files/a.tgz", bomb(10), content_encoding="gzip")
        upstream = upstream_of(registry, http)

        async with upstream.file(f"{registry.url}/files/a.tgz#sha256=00") as file:
            assert file.length == len(bomb(10))
            assert b"".join([piece async for piece in file.pieces]) == bomb(10)

        asked = registry.asked[0]
        assert asked.headers["accept-encoding"] == "identity"
        assert "range" not in asked.headers

    async def test_another_origin_is_asked_only_if_it_is_configured(
        self, registry, elsewhere, http
    ):
        elsewhere.says("/a.whl", b"wheel")

        with expect_failure("FILE_ORIGINS"):
            await received(upstream_of(registry, http), f"{elsewhere.url}/a.whl")
        assert elsewhere.asked == []

        upstream = upstream_of(registry, http, elsewhere.url)
        assert await received(upstream, f"{elsewhere.url}/a.whl") == b"wheel"
        assert "authorization" not in elsewhere.asked[0].headers

    async def test_one_that_arrives_too_slowly_is_given_up(self, registry, http):
        """It would hold one of the places at registries for half an hour."""
        registry.does("/a.whl", slow)
        limits = UpstreamLimits(slow_s=0.1)
        upstream = Upstream(http, parse_registry(registry.url), limits)

        with expect_failure("fewer than 65536 bytes in 0.1 s"):
            await received(upstream, f"{registry.url}/a.whl")

    @pytest.mark.parametrize("url", ["a.whl", "file:///etc/passwd", "http://[", "", "http://"])
    async def test_what_is_no_url_is_not_asked(self, registry, http, url):
        with pytest.raises(UpstreamFailed):
            await received(upstream_of(registry, http), url)

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (slow, "not all there within 0.5 s"),
            (silent, "ReadTimeout"),
            (endless, "longer than 100000"),
            (cut, "RemoteProtocolError"),
            (unfinished, "RemoteProtocolError"),
        ],
    )
    async def test_one_that_does_not_end_is_a_failure(self, registry, http, answer, reason):
        registry.does("/a.whl", answer)
        upstream = Upstream(http, parse_registry(registry.url), limits_for(answer))

        with expect_failure(reason):
            await received(upstream, f"{registry.url}/a.whl")

    async def test_one_that_says_it_is_too_long_is_not_begun(self, registry, http):
        registry.says("/a.whl", content_length="100001")
        upstream = Upstream(http, parse_registry(registry.url), SMALL)

        with expect_failure("longer than 100000"):
            async with upstream.file(f"{registry.url}/a.whl"):
                pytest.fail("begun")

    async def test_what_fails_in_the_block_is_not_the_registrys_fault(self, registry, http):
        """A full disk is not an upstream that fails."""
        registry.says("/a.whl", b"wheel")

        with pytest.raises(OSError, match="full"):
            async with upstream_of(registry, http).file(f"{registry.url}/a.whl"):
                raise OSError("full")
