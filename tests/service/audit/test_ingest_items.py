"""Bodies are cut into items in a memory that their bytes bound, whatever they hold."""

import pickle
import tracemalloc
from functools import partial
from typing import Any

import pytest
from msgspec import UNSET

from analytics.model.envelopes import VerifiedCi
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditContext, VerdictSource
from service.audit.ingest_items import (
    NDJSON_TYPE,
    TOO_MANY_ITEMS,
    IngestBody,
    prepare_body,
    split_items,
)
from service.audit.refusals import NOT_ITEMS
from service.core.errors import Invalid
from tests.conftest import START

ITEMS_MAX = 100
MANY = 500_000


@pytest.mark.parametrize(
    ("body", "mimetype"),
    [
        (b"[" + b"1," * MANY + b"1]", "application/json"),
        (b"1\n" * MANY, NDJSON_TYPE),
        (b"1\n \n" * MANY, NDJSON_TYPE),
    ],
    ids=["array", "lines", "lines and blanks"],
)
def test_a_flood_of_tiny_items_is_counted_before_it_is_kept_apart(body, mimetype):
    """Each would take more than a hundred times its byte."""
    tracemalloc.start()
    try:
        with pytest.raises(TOO_MANY_ITEMS):
            split_items(IngestBody(body, mimetype), ITEMS_MAX)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 15 * len(body)


def test_blank_lines_are_nothing_however_many():
    body = b"\n \r\n\t" * MANY
    around = body + b"{}" + body
    tracemalloc.start()
    try:
        assert split_items(IngestBody(body, NDJSON_TYPE), ITEMS_MAX) == []
        assert split_items(IngestBody(around, NDJSON_TYPE), ITEMS_MAX) == [b"{}"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < len(body)


@pytest.mark.parametrize("mimetype", ["application/json", NDJSON_TYPE])
@pytest.mark.parametrize("inside", [b"{}", b'{"a": [1, 2, 3, 4, 5, 6, 7, 8], "b": {"c": ","}}'])
def test_as_many_items_as_may_be_are_taken_and_no_more(mimetype, inside):
    between, ends = (b"\n", (b"", b"")) if mimetype == NDJSON_TYPE else (b",", (b"[", b"]"))
    for items in (ITEMS_MAX, ITEMS_MAX + 1):
        body = ends[0] + between.join([inside] * items) + ends[1]
        if items > ITEMS_MAX:
            with pytest.raises(TOO_MANY_ITEMS):
                split_items(IngestBody(body, mimetype), ITEMS_MAX)
        else:
            assert [bytes(item) for item in split_items(IngestBody(body, mimetype), ITEMS_MAX)] == (
                [inside] * items
            )


def carried(value: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("run_id", [UNSET, None, "9876543210"])
def test_what_goes_to_the_worker_process_and_back_stays_as_it_is(run_id):
    """A claim that the token lacks stays absent, not null; a refusal keeps its class."""
    ci = VerifiedCi(sub="repo:acme/web", run_id=run_id)
    audit_context = AuditContext("key_1", "api_key", VerdictSource.PROXY, ci=ci)
    interval = AcceptedInterval(START, None)
    body = IngestBody(
        b'[{"event":"install_allowed","packageName":"left-pad"},7]', "application/json"
    )

    work = carried(partial(prepare_body, body, audit_context, interval))
    prepared = carried(work())

    assert prepared == prepare_body(body, audit_context, interval)
    assert prepared.accepted == len(prepared.rejected) == 1
    with pytest.raises(Invalid, match="must be a JSON array"):
        raise carried(NOT_ITEMS())
