"""An S3 server that answers wrongly: a StoreFault or the right rows, and an end in any case."""

import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from analytics.model.errors import StoreFault
from analytics.storage import object_client
from analytics.storage import objects as objects_module
from analytics.storage.bucket_place import parse_place
from analytics.storage.cache_folder import CacheFolder, CacheObserver
from analytics.storage.file_copy import sha256_of
from analytics.storage.import_claims import CLAIMS, ImportClaim
from analytics.storage.object_fetcher import FETCHES_MAX
from analytics.storage.objects import ListDamaged, Objects
from analytics.storage.prefix_owner import OWNER, PrefixOwner
from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import NewSegment, write_segment
from tests.analytics.samples import DAY, TENANT, sample_row, table_of
from tests.budgets import budget, only_full
from tests.conftest import START
from tests.store_proxy import Answer, Fault, Request, StoreProxy, store_proxy

WAIT_S = 0.8
"""For requests that are to fail: a busy machine may fail them, too."""
PATIENCE_S = 30.0
"""For requests that are to succeed."""
INSTALLATION = "inst_" + "a" * 16
HTML = b"<html><body>Please sign in</body></html>"
_Ask = Callable[[], Answer]


@pytest.fixture
def proxy(bucket) -> Iterator[StoreProxy]:
    with store_proxy(bucket.server.endpoint) as store:
        yield store


def open_store(folder: Path, bucket, endpoint: str, wait_s: float = PATIENCE_S) -> S3Segments:
    """With its cache in `folder`, which others may share."""
    folder.mkdir(exist_ok=True)
    cache = CacheFolder(folder, 2**30, wait_s, CacheObserver())
    return S3Segments(Objects(parse_place(bucket.url), endpoint, wait_s), cache, CacheObserver())


def write(number: int) -> Callable[[Path], Segment]:
    rows = [sample_row(START, package_name=f"p{n}") for n in range(50)]
    return lambda folder: write_segment(
        folder, "org_a", START.date(), f"seg_{number:016d}", table_of(rows, 1 + 50 * number)
    )


@pytest.fixture
def stored(tmp_path, bucket) -> Segment:
    with closing(open_store(tmp_path / "first", bucket, bucket.server.endpoint)) as store:
        return store.put(write(0))


@pytest.fixture
def store(tmp_path, bucket, proxy) -> Iterator[S3Segments]:
    """What reads and writes by way of the proxy, with an empty disk, and soon gives up."""
    with closing(open_store(tmp_path / "second", bucket, proxy.endpoint, WAIT_S)) as opened:
        yield opened


@pytest.fixture
def patient(tmp_path, bucket, proxy) -> Iterator[S3Segments]:
    """The same, on the same disk, for requests that are to succeed."""
    with closing(open_store(tmp_path / "second", bucket, proxy.endpoint)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _ask_at_once(monkeypatch) -> None:
    """No request is left out because of the one before."""
    monkeypatch.setattr(object_client, "FAIL_FAST_S", 0.0)


def answer(status: int, body: bytes = b"", **headers: str) -> Fault:
    """Always this."""
    return lambda request, ask: Answer(status, body, headers)


def changed(**changes: object) -> Fault:
    return lambda request, ask: replace(ask(), **changes)


def with_headers(**headers: str) -> Fault:
    def fault(request: Request, ask: _Ask) -> Answer:
        own = ask()
        others = {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {name: value for name, value in own.headers.items() if name.lower() not in others}
        return replace(own, headers=kept | others)

    return fault


def with_body(change: Callable[[bytes], bytes], fault: Fault | None = None) -> Fault:
    """The answer of `fault`, or of the server, with another body."""

    def changing(request: Request, ask: _Ask) -> Answer:
        own = fault(request, ask) if fault else ask()
        return replace(own, body=change(own.body))

    return changing


def only(fault: Fault, is_meant: Callable[[Request], bool]) -> Fault:
    """`fault` for the requests that are meant, the server's own answers for all others."""
    return lambda request, ask: fault(request, ask) if is_meant(request) else ask()


def redirect(status: int, to: str = "") -> Fault:
    return lambda request, ask: Answer(status, b"", {"location": to or request.path})


def flipped(content: bytes) -> bytes:
    return content[:200] + bytes([content[200] ^ 1]) + content[201:]


READ_FAULTS: dict[str, Fault] = {
    "HTML": answer(200, HTML),
    "HTML with the headers of the object": with_body(lambda _: HTML),
    "an empty body": with_body(lambda _: b""),
    "no content": answer(204),
    "a part, not asked for": with_body(lambda content: content[:100], changed(status=206)),
    "a stated length that is too small": changed(length=100),
    "a stated length that is too large": changed(length=10**6, end="close"),
    "a body that breaks off": changed(sent=100, end="close"),
    "a body that is reset": changed(sent=100, end="reset"),
    "a body that stalls": changed(sent=100, end="stall"),
    "no answer": lambda request, ask: Answer(0, end="stall"),
    "a reset": lambda request, ask: Answer(0, end="reset"),
    "more than the object": with_body(lambda content: content + b"x"),
    "a body without end": changed(is_endless=True, end="close"),
    "other bytes of the same size": with_body(flipped),
    "compressed": with_body(gzip.compress, with_headers(content_encoding="gzip")),
    "301": redirect(301),
    "302 to elsewhere": redirect(302, "http://127.0.0.1:9/object"),
    "302 to nowhere": answer(302),
    "307": redirect(307),
    "304": answer(304),
    "403": answer(403, b"<Error><Code>AccessDenied</Code></Error>"),
    "404": answer(404, b"<Error><Code>NoSuchKey</Code></Error>"),
    "500": answer(500),
    "503": answer(503, b"<Error><Code>SlowDown</Code></Error>"),
    "an unknown status": answer(999),
    "no date": with_headers(last_modified="yesterday"),
}
QUICK = {"HTML", "404", "403", "a body without end", "other bytes of the same size"}
"""What `make test` tries: most others wait for retries."""


def cases(faults: dict[str, Fault]) -> list:
    return [
        pytest.param(fault, id=name, marks=() if name in QUICK else only_full)
        for name, fault in faults.items()
    ]


def is_object(request: Request) -> bool:
    return request.method == "GET" and request.path.endswith(".parquet")


def assert_readable(store: S3Segments, segment: Segment) -> None:
    with store.local([segment]):
        assert sha256_of(segment.path(store.root)) == segment.sha256


@pytest.mark.parametrize("fault", cases(READ_FAULTS))
def test_a_wrong_answer_is_no_segment(store, patient, stored, proxy, fault):
    proxy.fault = only(fault, is_object)

    with pytest.raises(StoreFault), store.local([stored]):
        pass  # pragma: no cover - not reached

    assert not stored.path(store.root).exists()
    assert list(store.root.glob(".cache/work-*/*/*")) == []
    proxy.fault = None
    assert_readable(patient, stored)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(with_headers(etag='"another"'), id="another ETag"),
        pytest.param(with_headers(content_encoding="gzip"), id="called compressed"),
        pytest.param(with_headers(content_type="text/html"), id="called HTML"),
    ],
)
def test_wrong_headers_of_the_right_bytes_do_no_harm(patient, stored, proxy, fault):
    proxy.fault = only(fault, is_object)

    assert_readable(patient, stored)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(answer(500), id="500", marks=only_full),
        pytest.param(answer(503), id="503"),
        pytest.param(changed(sent=100, end="close"), id="breaks off", marks=only_full),
    ],
)
def test_what_is_wrong_once_is_asked_for_again(patient, stored, proxy, fault):
    proxy.fault = only(fault, lambda request: is_object(request) and len(proxy.requests) == 1)

    assert_readable(patient, stored)

    assert len(proxy.requests) == 2


def test_a_body_without_end_is_not_read_on(store, stored, proxy):
    proxy.fault = only(changed(is_endless=True, end="close"), is_object)

    with pytest.raises(StoreFault), store.local([stored]):
        pass  # pragma: no cover - not reached

    assert proxy.sent_bytes < 64 * 2**20


def test_a_truncated_object_makes_no_other_unreachable(patient, stored, proxy, monkeypatch):
    monkeypatch.setattr(object_client, "FAIL_FAST_S", 60.0)
    proxy.fault = only(with_headers(last_modified="yesterday"), is_object)
    with pytest.raises(StoreFault, match="is no S3 answer"), patient.local([stored]):
        pass  # pragma: no cover - not reached

    proxy.fault = None
    assert_readable(patient, stored)


def of_keys(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    return re.sub(rb"<Key>([^<]*)", lambda found: b"<Key>" + change(found[1]), content)


def with_another_page(content: bytes) -> bytes:
    """A page of a list that says that there is a next one."""
    return content.replace(
        b"<IsTruncated>false</IsTruncated>",
        b"<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>",
    )


LIST_FAULTS: dict[str, Fault] = {
    "HTML": answer(200, HTML),
    "an empty body": answer(200),
    "noise": answer(200, bytes(range(256))),
    "XML that breaks off": answer(200, b"<ListBucketResult><Contents><Key>x"),
    "a body that breaks off": changed(sent=100, end="close"),
    "a body that stalls": changed(sent=100, end="stall"),
    "keys of another folder": with_body(
        lambda content: of_keys(content, lambda key: key.replace(b"tenant=org_a", b"tenant=org_b"))
    ),
    "keys that lead elsewhere": with_body(
        lambda content: of_keys(content, lambda key: key.replace(b"tenant=org_a", b".."))
    ),
    "sizes below zero": with_body(lambda content: re.sub(rb"<Size>", b"<Size>-", content)),
    "no dates": with_body(lambda content: re.sub(rb"<LastModified>", b"<LastModified>x", content)),
    "302": redirect(302, "http://127.0.0.1:9/"),
    "403": answer(403),
    "404": answer(404),
    "500": answer(500),
}
QUICK |= {"keys of another folder", "keys that lead elsewhere", "noise"}


@pytest.mark.parametrize("fault", cases(LIST_FAULTS))
def test_a_wrong_list_makes_no_segment_missing(store, stored, proxy, fault):
    proxy.fault = only(fault, lambda request: request.is_list)

    try:
        missing = store.list_missing([stored] * (FETCHES_MAX + 1))
    except StoreFault:
        return
    assert missing == []


def repeated(proxy: StoreProxy, change: Callable[[bytes], bytes]) -> Fault:
    """Every list is the first page again, with a change, and with another page to come."""
    pages: list[Answer] = []

    def fault(request: Request, ask: _Ask) -> Answer:
        if not pages:
            pages.append(ask())
        return replace(pages[0], body=change(with_another_page(pages[0].body)))

    return only(fault, lambda request: request.is_list)


@pytest.mark.parametrize("others", [0, 1, pytest.param(5, marks=only_full)])
def test_a_list_that_begins_again_ends_with_a_fault(
    patient, stored, bucket, proxy, others, monkeypatch
):
    monkeypatch.setattr(objects_module, "LISTED_MAX", 1_000)
    for number in range(others):
        bucket.write(f"other/{number}", b"x")
    proxy.fault = repeated(proxy, bytes)

    with pytest.raises(ListDamaged, match="does not end"):
        patient.list_files()

    assert len(proxy.requests) < 40


def test_a_list_without_end_ends_with_a_fault(patient, stored, proxy, monkeypatch):
    monkeypatch.setattr(objects_module, "LISTED_MAX", 20)

    proxy.fault = repeated(
        proxy, lambda body: re.sub(rb"seg_\d+", b"seg_%016d" % len(proxy.requests), body)
    )

    with pytest.raises(ListDamaged, match="does not end"):
        patient.list_files()


@pytest.fixture
def claimed(bucket, patient) -> S3Segments:
    """A prefix in which an import keeps two segments."""
    PrefixOwner(bucket.objects()).adopt(INSTALLATION, ())
    bucket.write(f"{CLAIMS}/one.json", b'["seg_1", "seg_2"]')
    assert patient.claimed(3600) == {"seg_1", "seg_2"}
    return patient


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(only(answer(200, HTML), lambda r: r.is_list), id="lists are HTML"),
        *(
            pytest.param(only(fault, lambda r: r.path.endswith(".json")), id=f"claims are {name}")
            for name, fault in (
                ("404", answer(404)),
                ("HTML", answer(200, HTML)),
                ("empty", answer(200)),
                ("numbers", answer(200, b"[1, 2]")),
            )
        ),
    ],
)
def test_a_claim_that_cannot_be_read_is_not_taken_for_none(claimed, proxy, fault):
    """Otherwise a sweep would remove what a running import has stored."""
    proxy.fault = fault

    try:
        ids = claimed.claimed(3600)
    except StoreFault:
        return
    assert ids == {"seg_1", "seg_2"}


def test_every_flipped_bit_of_a_claim_is_found(claimed, bucket, monkeypatch):
    """With another id a sweep would remove the segment of an import."""
    monkeypatch.setattr("analytics.storage.import_claims.RENEWALS", 1e9)
    rows = NewSegment(TENANT, DAY, "seg_3", table_of([sample_row()]))
    ImportClaim(claimed, bucket.objects(), 3600).put_rows([rows])
    (key,) = {entry.key for entry in bucket.objects().entries(CLAIMS)} - {f"{CLAIMS}/one.json"}
    assert claimed.claimed(3600) == {"seg_1", "seg_2", "seg_3"}
    content = bucket.content(key)
    for place in range(0, len(content), budget(4, 1)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        bucket.write(key, bytes(changed))

        with pytest.raises(StoreFault, match=key):
            claimed.claimed(3600)


WRITE_FAULTS: dict[str, Fault] = {
    "200 and not stored": answer(200, etag='"0"'),
    "200 without an ETag": answer(200),
    "HTML": answer(200, HTML),
    "412 and not stored": answer(412),
    "409": answer(409),
    "304": answer(304),
    "301": redirect(301),
    "302": redirect(302),
    "307": redirect(307),
    "403": answer(403),
    "404": answer(404),
    "500": answer(500),
    "a reset": lambda request, ask: Answer(0, end="reset"),
    "no answer": lambda request, ask: Answer(0, end="stall"),
}
QUICK |= {"200 and not stored", "412 and not stored", "307"}


@pytest.mark.parametrize("fault", cases(WRITE_FAULTS))
def test_what_is_not_stored_is_never_said_to_be(store, patient, bucket, proxy, fault):
    """So the catalog does not name it, and its rows stay in the journal."""
    proxy.fault = only(fault, lambda request: request.method == "PUT")

    with pytest.raises(StoreFault):
        store.put(write(1))

    assert bucket.list_keys() == set()
    proxy.fault = None
    assert_readable(patient, patient.put(write(1)))


@pytest.mark.parametrize("fault", [answer(412), answer(500)], ids=["412", "500"])
def test_an_object_that_was_stored_without_saying_so_is_the_same(patient, bucket, proxy, fault):
    def lying(request: Request, ask: _Ask) -> Answer:
        ask()
        return fault(request, ask) if len(proxy.requests) == 1 else ask()

    proxy.fault = only(lying, lambda request: request.method == "PUT" and is_rows(request))

    assert_readable(patient, patient.put(write(1)))


def is_rows(request: Request) -> bool:
    return request.path.endswith(".parquet")


@pytest.mark.parametrize(
    "fault",
    [answer(200, HTML), answer(200), answer(500), answer(403)],
    ids=["HTML", "an empty body", "500", "403"],
)
def test_objects_that_were_not_removed_are_never_said_to_be(store, stored, bucket, proxy, fault):
    keys = bucket.list_keys()
    proxy.fault = only(fault, lambda request: request.method in {"POST", "DELETE"})

    with pytest.raises(StoreFault):
        store.delete([stored])

    assert bucket.list_keys() == keys


@pytest.mark.parametrize("content", [HTML, b"", INSTALLATION.encode() + b"\n<html>"], ids=str)
def test_an_owner_that_is_something_else_is_no_free_prefix(bucket, proxy, content):
    owner = PrefixOwner(Objects(parse_place(bucket.url), proxy.endpoint, WAIT_S))
    proxy.fault = only(answer(200, content), lambda request: request.path.endswith(OWNER))

    with pytest.raises(StoreFault):
        owner.is_owner(INSTALLATION)
    with pytest.raises(StoreFault):
        owner.adopt(INSTALLATION, ())
