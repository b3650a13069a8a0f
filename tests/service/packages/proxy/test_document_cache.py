"""A package's document is asked for rarely, confirmed cheaply, and survives an outage."""

import asyncio
import json
import os
import pickle
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from service.packages.proxy.answers import RegistryDocument, UpstreamLimits, Validators
from service.packages.proxy.circuit_breaker import FAILURES_MAX, OPEN_S, STALL_S, CircuitState
from service.packages.proxy.document_cache import (
    EMPTIED_AFTER,
    MISSING_FOR,
    RETRY_AFTER,
    CachedDocument,
    _pack_document,
)
from service.packages.proxy.document_files import CompressedDocument, StoredDocument
from service.packages.proxy.documents import DocumentInvalid
from service.packages.proxy.upstream import TRIALS_MAX, Upstream
from service.packages.refusals import (
    ProxyBusy,
    RegistryUnavailable,
    UpstreamFailed,
    UpstreamMissing,
)
from tests.budgets import only_full
from tests.polling import until
from tests.service.packages.proxy.documents import (
    AGES,
    Documents,
    SettableTimer,
    open_documents,
    parse_and_tell,
)
from tests.service.packages.proxy.registry import head


@pytest.fixture
async def documents(tmp_path, registry, http, clock) -> AsyncIterator[Documents]:
    async with open_documents(tmp_path, registry, http, clock) as opened:
        yield opened


@pytest.fixture
def reopened(tmp_path, registry, http, clock):
    """Another process, or this one after a restart."""

    def reopen(**options):
        return open_documents(tmp_path, registry, http, clock, **options)

    return reopen


async def read(documents: Documents, document: CachedDocument):
    return await documents.cache.read(document, dict)


async def value(documents: Documents, name: str = "a"):
    return await read(documents, await documents.cache.get(name, "acme"))


class TestFresh:
    async def test_it_is_asked_for_once_within_its_age(self, documents, clock):
        documents.publishes("a", size=1)
        first = await documents.cache.get("a", "acme")
        clock.now += AGES.fresh - timedelta(seconds=1)
        documents.publishes("a", size=2)
        second = await documents.cache.get("a", "acme")

        assert await read(documents, first) == {"name": "a", "size": 1}
        assert second is first
        assert documents.registry.times("/a/") == 1
        assert not first.is_stale

    async def test_many_requests_share_one_fetch(self, documents):
        documents.publishes("a")

        values = await asyncio.gather(*(documents.cache.get("a", "acme") for _ in range(50)))

        assert all(one is values[0] for one in values)
        assert documents.registry.times("/a/") == 1

    async def test_a_request_that_is_cancelled_does_not_end_the_others(self, documents):
        documents.publishes("a")
        first = asyncio.create_task(documents.cache.get("a", "acme"))
        second = asyncio.create_task(documents.cache.get("a", "acme"))
        await asyncio.sleep(0)
        first.cancel()

        assert await read(documents, await second) == {"name": "a"}

    async def test_it_survives_a_restart(self, documents, reopened):
        documents.publishes("a", size=1)
        first = await documents.cache.get("a", "acme")
        async with reopened() as later:
            second = await later.cache.get("a", "acme")

        assert second.stored == first.stored
        assert second.confirmed_at == first.confirmed_at
        assert documents.registry.times("/a/") == 1

    async def test_names_do_not_share_documents(self, documents):
        documents.publishes("a")
        documents.publishes("b")

        assert await value(documents, "a") == {"name": "a"}
        assert await value(documents, "b") == {"name": "b"}

    async def test_memory_is_bounded(self, tmp_path, registry, http, clock):
        async with open_documents(tmp_path, registry, http, clock, memory_bytes=2000) as documents:
            for name in "abcdefgh":
                documents.publishes(name)
                await documents.cache.get(name, "acme")

            assert await value(documents, "a") == {"name": "a"}
            assert documents.registry.times("/a/") == 1
            assert documents.cache._memory.size <= 2000


class TestOld:
    async def test_it_is_confirmed_by_a_conditional_request(self, documents, clock):
        documents.publishes("a", etag='W/"7"')
        first = await documents.cache.get("a", "acme")
        documents.confirms("a")
        clock.now += AGES.fresh
        second = await documents.cache.get("a", "acme")

        assert second.stored is first.stored
        assert second.confirmed_at == clock.now
        assert documents.registry.asked[1].headers["if-none-match"] == 'W/"7"'
        assert (await documents.cache.get("a", "acme")) is second

    async def test_it_is_replaced_by_what_is_new(self, documents, clock):
        documents.publishes("a", size=1)
        first = await documents.cache.get("a", "acme")
        documents.publishes("a", etag='"2"', size=2)
        clock.now += AGES.fresh
        second = await documents.cache.get("a", "acme")

        assert await read(documents, second) == {"name": "a", "size": 2}
        assert second.version != first.version

    async def test_a_confirmation_is_seen_by_other_processes(self, documents, reopened, clock):
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        async with reopened() as other:
            await other.cache.get("a", "acme")
            documents.confirms("a")
            clock.now += AGES.fresh
            await documents.cache.get("a", "acme")
            assert (await other.cache.get("a", "acme")).confirmed_at == clock.now

        assert documents.registry.times("/a/") == 2

    async def test_a_new_version_is_seen_by_other_processes(self, documents, reopened, clock):
        documents.publishes("a", size=1)
        async with reopened() as other:
            await other.cache.get("a", "acme")
            documents.publishes("a", size=2)
            clock.now += AGES.fresh
            await documents.cache.get("a", "acme")
            assert await value(other) == {"name": "a", "size": 2}

        assert documents.registry.times("/a/") == 2

    async def test_a_clock_that_was_set_back_does_not_keep_it(self, documents, clock):
        documents.publishes("a", size=1)
        await documents.cache.get("a", "acme")
        documents.publishes("a", size=2)
        clock.now -= timedelta(days=1)

        assert await value(documents) == {"name": "a", "size": 2}


class TestOutage:
    async def test_the_last_one_is_served_up_to_a_limit(self, documents, clock):
        documents.publishes("a")
        first = await documents.cache.get("a", "acme")
        documents.fails("a")
        clock.now += AGES.stale_max - timedelta(seconds=1)
        stale = await documents.cache.get("a", "acme")
        assert stale.is_stale
        assert (stale.stored, stale.confirmed_at) == (first.stored, first.confirmed_at)

        clock.now += timedelta(seconds=1)
        with pytest.raises(UpstreamFailed):
            await documents.cache.get("a", "acme")

    async def test_it_is_served_after_a_restart(self, documents, reopened, clock):
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        documents.fails("a")
        clock.now += timedelta(hours=1)
        async with reopened() as later:
            assert (await later.cache.get("a", "acme")).is_stale

    async def test_the_registry_is_not_asked_by_every_request(self, documents, clock):
        """Each would wait until it times out."""
        documents.fails("a")
        for _ in range(3):
            with pytest.raises(UpstreamFailed):
                await documents.cache.get("a", "acme")
        assert documents.registry.times("/a/") == 1

        clock.now += RETRY_AFTER
        documents.publishes("a")
        assert await value(documents) == {"name": "a"}

    async def test_a_registry_that_is_back_confirms_what_was_too_old(self, documents, clock):
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        documents.fails("a")
        clock.now += AGES.stale_max
        with pytest.raises(UpstreamFailed):
            await documents.cache.get("a", "acme")
        documents.confirms("a")
        clock.now += RETRY_AFTER

        assert not (await documents.cache.get("a", "acme")).is_stale

    async def test_a_slow_registry_is_an_outage(self, tmp_path, registry, http, clock):
        async def silent(asked, writer):
            writer.write(head(content_length="10"))
            await writer.drain()
            await asyncio.sleep(60)

        limits = UpstreamLimits(progress_s=0.05)
        async with open_documents(tmp_path, registry, http, clock, limits=limits) as documents:
            documents.publishes("a")
            await documents.cache.get("a", "acme")
            registry.does("/a/", silent)
            clock.now += AGES.fresh

            assert (await documents.cache.get("a", "acme")).is_stale

    @pytest.mark.parametrize("body", [b"no JSON", b'{"name": "other"}', b""])
    async def test_a_document_that_is_none_is_an_outage(self, documents, clock, body):
        """A page of an error, or of a captive portal, replaces nothing."""
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        documents.registry.says("/a/", body)
        clock.now += AGES.fresh
        assert (await documents.cache.get("a", "acme")).is_stale

        documents.registry.says("/b/", body)
        with pytest.raises(UpstreamFailed):
            await documents.cache.get("b", "acme")


async def silent(asked, writer):
    """Takes the request, and never answers."""
    await asyncio.sleep(600)


class TestRegistryThatHangs:
    @pytest.fixture
    async def hanging(self, tmp_path, registry, http, clock) -> AsyncIterator[Documents]:
        """Six documents that are out of date, at a registry that has begun to hang."""
        async with open_documents(
            tmp_path, registry, http, clock, patience_s=0.05, timer=SettableTimer()
        ) as documents:
            for name in "abcdef":
                documents.publishes(name)
                await documents.cache.get(name, "acme")
            for name in "abcdefg":
                documents.registry.does(f"/{name}/", silent)
            clock.now += AGES.fresh
            yield documents

    async def test_the_copy_is_served_long_before_the_request_fails(self, hanging):
        assert (await hanging.cache.get("a", "acme")).is_stale
        assert hanging.upstream.state is CircuitState.CLOSED

    async def test_later_requests_wait_for_nothing(self, hanging):
        await hanging.cache.get("a", "acme")
        hanging.timer.now += STALL_S
        hanging.cache.patience_s = 600
        for name in "bcdef" * 10:
            assert (await hanging.cache.get(name, "acme")).is_stale

        assert 6 < len(hanging.registry.asked) <= 6 + TRIALS_MAX

    async def test_the_answer_is_used_when_it_comes(self, hanging):
        hanging.publishes("a", etag='"2"', size=2)
        hanging.cache.patience_s = 0
        assert await value(hanging) == {"name": "a"}
        await until(lambda: hanging.cache.in_memory("a") is not None)

        assert await value(hanging) == {"name": "a", "size": 2}

    async def test_while_it_is_not_asked_copies_are_served_and_all_else_is_refused(self, hanging):
        await open_circuit(hanging.upstream)
        asked = len(hanging.registry.asked)
        assert (await hanging.cache.get("a", "acme")).is_stale
        for _ in range(3):
            with pytest.raises(RegistryUnavailable):
                await hanging.cache.get("g", "acme")

        assert len(hanging.registry.asked) == asked

    async def test_one_request_tries_again_in_the_background(self, hanging, clock):
        await open_circuit(hanging.upstream)
        hanging.timer.now += OPEN_S
        hanging.cache.patience_s = 600
        asked = len(hanging.registry.asked)
        for name in "abcdef":
            assert (await hanging.cache.get(name, "acme")).is_stale
        with pytest.raises(RegistryUnavailable):
            await hanging.cache.get("g", "acme")
        await until(lambda: len(hanging.registry.asked) == asked + 1)

    async def test_a_full_waiting_room_is_no_reason_to_fail_where_there_is_a_copy(self, hanging):
        places = [await hanging.upstream.admit("acme") for _ in range(56)]
        waiting = [asyncio.create_task(hanging.upstream.admit("acme")) for _ in range(448)]
        await asyncio.sleep(0)

        assert (await hanging.cache.get("a", "acme")).is_stale
        with pytest.raises(ProxyBusy):
            await hanging.cache.get("g", "acme")
        for task in waiting:
            task.cancel()
        for place in places:
            place.release()

    async def test_a_request_that_waits_for_a_place_is_not_of_another_organisation(self, hanging):
        """It does not wait behind a queue of others, even for the same document."""
        for _ in range(56):
            await hanging.upstream.admit("other")
        first = asyncio.create_task(hanging.cache.get("g", "other"))
        await asyncio.sleep(0.01)
        hanging.publishes("g")

        assert await read(hanging, await hanging.cache.get("g", "acme")) == {"name": "g"}
        assert not first.done()
        first.cancel()


async def open_circuit(upstream: Upstream) -> None:
    """Have the registry's own requests fail."""
    for _ in range(FAILURES_MAX):
        attempt = upstream.circuits[upstream.registry.origin].begin()
        assert attempt is not None
        attempt.fail()
    assert upstream.state is CircuitState.OPEN


class TestEmptied:
    """A registry that has lost its index lists nothing, with status 200."""

    async def test_an_empty_list_does_not_replace_one_with_files(self, documents, clock):
        documents.publishes("a", files=[1])
        await documents.cache.get("a", "acme")
        documents.publishes("a", etag='"2"', files=[])
        for _ in range(3):
            clock.now += AGES.fresh
            stale = await documents.cache.get("a", "acme")
            assert stale.is_stale
            assert await read(documents, stale) == {"name": "a", "files": [1]}

        health = documents.upstream.health
        assert "lists nothing any more" in health.failure

    async def test_it_is_believed_when_it_is_still_empty_later(self, documents, clock):
        documents.publishes("a", files=[1])
        await documents.cache.get("a", "acme")
        documents.publishes("a", etag='"2"', files=[])
        clock.now += AGES.fresh
        assert (await documents.cache.get("a", "acme")).is_stale
        clock.now += EMPTIED_AFTER

        assert await value(documents) == {"name": "a", "files": []}

    async def test_the_time_counts_from_the_last_list_with_files(self, documents, clock):
        documents.publishes("a", files=[1])
        await documents.cache.get("a", "acme")
        for _ in range(4):
            documents.publishes("a", etag='"2"', files=[])
            clock.now += EMPTIED_AFTER - timedelta(seconds=1)
            assert (await documents.cache.get("a", "acme")).is_stale
            documents.publishes("a", etag='"1"', files=[1])
            clock.now += RETRY_AFTER
            assert not (await documents.cache.get("a", "acme")).is_stale

    async def test_the_time_counts_from_the_last_confirmed_list_with_files(self, documents, clock):
        """A registry that says nothing new has listed the files all the same."""
        documents.publishes("a", files=[1])
        await documents.cache.get("a", "acme")
        for _ in range(2):
            documents.publishes("a", etag='"2"', files=[])
            clock.now += AGES.fresh
            assert (await documents.cache.get("a", "acme")).is_stale
            documents.confirms("a")
            clock.now += EMPTIED_AFTER
            assert not (await documents.cache.get("a", "acme")).is_stale

    async def test_a_package_that_never_listed_anything_may(self, documents, clock):
        documents.publishes("a", files=[])
        await documents.cache.get("a", "acme")
        documents.publishes("a", etag='"2"', files=[], more=1)
        clock.now += AGES.fresh

        assert await value(documents) == {"name": "a", "files": [], "more": 1}


class TestMissing:
    async def test_it_is_forgotten_soon(self, documents, clock):
        """A package that is published after a first try must be found."""
        for _ in range(3):
            with pytest.raises(UpstreamMissing):
                await documents.cache.get("a", "acme")
        assert documents.registry.times("/a/") == 1
        documents.publishes("a")
        clock.now += MISSING_FOR

        assert await value(documents) == {"name": "a"}

    async def test_what_was_withdrawn_does_not_come_back_in_an_outage(
        self, documents, reopened, clock
    ):
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        documents.registry.says("/a/", status=404)
        clock.now += AGES.fresh
        with pytest.raises(UpstreamMissing):
            await documents.cache.get("a", "acme")
        documents.fails("a")

        clock.now += AGES.fresh
        async with reopened() as later:
            for process in (documents, later):
                with pytest.raises(UpstreamFailed):
                    await process.cache.get("a", "acme")


class TestOnDisk:
    @pytest.mark.parametrize("damage", ["cut", "flip", "empty", "more"])
    async def test_a_damaged_file_is_fetched_again(self, documents, reopened, damage):
        documents.publishes("a", text="x" * 1000)
        await documents.cache.get("a", "acme")
        (path,) = documents.paths()
        content = path.read_bytes()
        changed = {
            "cut": content[:-1],
            "flip": content[:50] + bytes([content[50] ^ 1]) + content[51:],
            "empty": b"",
            "more": content + b"x",
        }
        path.write_bytes(changed[damage])
        with capture_logs() as logs:
            async with reopened() as later:
                assert (await value(later))["text"] == "x" * 1000

        assert [line["event"] for line in logs] == ["cached_document_damaged"]
        assert documents.registry.times("/a/") == 2

    async def test_every_flipped_bit_is_noticed(self, documents):
        """Also in the validators, with which the registry would confirm another version."""
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        (path,) = documents.paths()
        content = path.read_bytes()
        assert await documents.files.load(_key(documents), _decoded) is not None
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])

            assert await documents.files.load(_key(documents), _decoded) is None

    async def test_what_another_version_wrote_is_fetched_again(self, documents, reopened):
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        async with reopened() as later:
            decode = _decode_that_fails_at_first(later)
            later.cache._decoded = replace(later.cache._decoded, _decode=decode)
            with capture_logs() as logs:
                assert await value(later) == {"name": "a"}
        assert [line["event"] for line in logs] == ["cached_document_damaged"]
        assert documents.registry.times("/a/") == 2

    async def test_a_full_disk_costs_requests_and_no_answers(self, tmp_path, registry, http, clock):
        async with open_documents(
            tmp_path, registry, http, clock, free_bytes_min=2**60
        ) as documents:
            documents.publishes("a")
            with capture_logs() as logs:
                assert await value(documents) == {"name": "a"}
                assert await value(documents) == {"name": "a"}

            assert [line["event"] for line in logs] == ["document_file_failed"]
            assert documents.paths() == []
            assert list(documents.folder.glob("parts/*")) == []

    async def test_it_is_bounded_on_disk(self, tmp_path, registry, http, clock):
        async with open_documents(tmp_path, registry, http, clock) as documents:
            for name in "abcd":
                documents.publishes(name)
                await documents.cache.get(name, "acme")
                clock.now += timedelta(seconds=1)
            size = (await documents.files.usage()).bytes
        async with open_documents(tmp_path, registry, http, clock, bytes_max=size - 1) as documents:
            await documents.files.sweep()
            await value(documents, "d")
            await value(documents, "a")

            assert documents.registry.times("/a/") == 2
            assert documents.registry.times("/d/") == 1

    async def test_the_file_is_synced_before_it_has_its_name(self, documents, file_steps):
        documents.publishes("a")
        await documents.cache.get("a", "acme")
        (path,) = documents.paths()

        renamed = file_steps.index("rename", path)
        before = [step for step in file_steps.steps[:renamed] if step[0] == "fsync"]
        assert any("parts" in synced.parts for _, synced in before)
        assert file_steps.steps.index(("fsync", path.parent), renamed) > renamed

    async def test_the_name_of_a_package_is_no_path(self, documents):
        """A name that got past all checks would still be a digest on disk."""
        documents.registry.says("/x/", b'{"name": "x"}')
        with pytest.raises(UpstreamMissing):
            await documents.cache.get("../../x", "acme")

        assert documents.paths() == []


class TestHeavy:
    async def test_a_large_document_is_the_same(self, tmp_path, registry, http, clock):
        async with open_documents(
            tmp_path, registry, http, clock, memory_bytes=2**26, heavy_bytes=1000
        ) as documents:
            documents.publishes("a", text="x" * 500_000)
            first = await documents.cache.get("a", "acme")

            assert await read(documents, first) == {"name": "a", "text": "x" * 500_000}
            assert await documents.cache.get("a", "acme") is first
            (path,) = documents.paths()
            assert path.stat().st_size < 5000

    async def test_small_documents_stay_decoded_and_large_ones_are_emptied_after_use(
        self, tmp_path, registry, http, clock
    ):
        """To free a large one in one step would hold the interpreter's lock for 30 ms."""
        async with open_documents(
            tmp_path, registry, http, clock, decoded_bytes=10_000
        ) as documents:
            for name, text in ("small", ""), ("large", "x" * 10_000):
                documents.publishes(name, text=text)
                document = await documents.cache.get(name, "acme")
                values = [
                    await documents.cache.read(document, lambda decoded: decoded) for _ in "12"
                ]

                assert (values[0] is values[1]) == (name == "small")
                assert [bool(decoded) for decoded in values] == [name == "small"] * 2

    async def test_what_parses_it_can_be_sent_to_another_process(self, proxied):
        proxy = proxied.world.services.proxy
        document = RegistryDocument(
            "https://a.example/", "application/json", (b"{",), Validators('"1"')
        )
        assert CompressedDocument.of(document).document() == document
        for codec in (each.public.documents._codec for each in proxy.registries.values()):
            work = codec.parse, codec.is_empty, codec.encode
            sent = pickle.dumps((_pack_document, *work, CompressedDocument.of(document)))
            pack, *arguments = pickle.loads(sent)  # noqa: S301 - our own bytes
            with pytest.raises(DocumentInvalid) as invalid:
                pack(*arguments, "a")

            came_back = pickle.loads(pickle.dumps(invalid.value))  # noqa: S301 - our own bytes
            assert str(came_back) == "document is not JSON"

    @only_full
    @pytest.mark.slow
    async def test_it_is_parsed_in_the_worker_process_from_the_first_on(
        self, tmp_path, registry, http, clock
    ):
        """In a thread, a parser would hold up other requests."""
        async with open_documents(
            tmp_path, registry, http, clock, heavy_bytes=1, processes=1
        ) as documents:
            documents.cache._codec = replace(documents.cache._codec, parse=parse_and_tell)
            documents.publishes("a")
            registry.says("/b/", b"no JSON")

            assert (await value(documents))["parsed_by"] != os.getpid()
            with pytest.raises(UpstreamFailed):
                await documents.cache.get("b", "acme")
            assert documents.cache._worker._is_ready

    async def test_a_large_document_that_is_none_is_an_outage(
        self, tmp_path, registry, http, clock
    ):
        async with open_documents(tmp_path, registry, http, clock, heavy_bytes=1) as documents:
            registry.says("/a/", b"no JSON")
            with pytest.raises(UpstreamFailed):
                await documents.cache.get("a", "acme")


def _decoded(stored: StoredDocument):
    return json.loads(stored.encoded())


def _key(documents: Documents) -> str:
    return documents.cache._key("a")


def _decode_that_fails_at_first(documents: Documents):
    decode = documents.cache._codec.decode
    seen = []

    def decode_new(encoded: bytes):
        if not seen:
            seen.append(encoded)
            raise LookupError("version 0")
        return decode(encoded)

    return decode_new
