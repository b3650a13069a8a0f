"""Two organisations never see each other's rows, whatever the rows or the questions say."""

import asyncio
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from analytics.model.filters import Query, parse_query
from analytics.storage.journal_batches import JournalPart
from service.app.bootstrap import prepare
from service.audit.lake import Lake
from service.store.catalog import add_segments, list_ids, load_segments
from service.store.engine_factory import create_engines
from service.store.journal import (
    append,
    list_batches,
    list_seqs,
    load_batches,
    remove_batches,
)
from service.store.store import Store
from service.store.transaction import within
from tests.analytics.samples import sample_row
from tests.budgets import budget
from tests.conftest import START, SettableClock, settings_over
from tests.service.store.conftest import add_org


async def seal(store, lake, tenant_id: str, segment_id: str) -> None:
    """All journal rows of the tenant as one segment."""
    async with store.write() as work:
        batches = await list_batches(work.session, tenant_id)
        part = JournalPart(tenant_id, START.date(), segment_id, batches)
        (segment,) = await lake.seal([part])
        assert await remove_batches(work.session, batches) == len(batches)
        await add_segments(work.session, [segment], work.now)


async def visible(store, lake, tenant_id: str, query: Query) -> list[str]:
    """The packages the tenant's query finds."""
    seen = await store.snapshot(tenant_id)
    rows = await lake.queries.run(lambda reader: reader.page(seen, query, 1000, None))
    assert await lake.queries.run(lambda reader: reader.count(seen, query)) == rows.num_rows
    return rows.column("package_name").to_pylist()


@pytest.fixture
def lake(settings, store):
    opened = Lake(settings)
    yield opened
    opened.close()


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize(
    "hostile",
    [
        "' OR tenant_id = 'other",
        "x' UNION ALL SELECT * FROM journal --",
        "*",
        "../tenant=other",
        "%",
        "\x00",
        "org_other",
    ],
)
async def test_hostile_values_are_values(store, lake, is_sealed, hostile):
    acme, other = await add_org(store, "acme"), await add_org(store, "other")
    for org, mark in ((acme, "acme"), (other, "other")):
        async with store.write() as work:
            rows = [
                sample_row(START, package_name=mark, subject=hostile, actor=other.id),
                sample_row(START, package_name=mark, subject="plain", actor=hostile),
            ]
            await append(work.session, org.id, rows, now=work.now)
        if is_sealed:
            await seal(store, lake, org.id, f"seg_{mark}")

    for org, mark in ((acme, "acme"), (other, "other")):
        everything = await visible(store, lake, org.id, Query())
        assert {package for package in everything if package} == {mark}
        for parameter in ("subject", "actor"):
            escaped = hostile.replace("*", "\\*")
            found = await visible(store, lake, org.id, parse_query({parameter: [escaped]}))
            assert found == [mark]


@pytest.mark.slow
@hypothesis.settings(max_examples=budget(5, 15))
@hypothesis.given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1)
)
def test_no_question_finds_another_tenants_rows(tmp_path_factory, texts):
    assert "other" not in asyncio.run(_found(tmp_path_factory.mktemp("data"), texts))


async def _found(folder: Path, texts: list[str]) -> set[str | None]:
    """The packages that acme finds with `texts`, which are subjects of other's package `other`."""
    ready = await prepare(settings_over(folder))
    engines = create_engines(ready.database, ready.database_wait_s)
    store, lake = Store(engines, SettableClock()), Lake(ready)
    try:
        acme, other = await add_org(store, "acme"), await add_org(store, "other")
        async with store.write() as work:
            rows = [sample_row(START, package_name="other", subject=text) for text in texts]
            await append(work.session, other.id, rows, now=work.now)
        forms = [form for text in texts for form in (text, f"!{text}", f"{text}*") if form != "!"]
        queries = [parse_query({"subject": [form]}) for form in forms]
        found = [await visible(store, lake, acme.id, query) for query in queries]
        return {package for packages in found for package in packages}
    finally:
        lake.close()
        await engines.dispose()


async def test_what_another_tenant_is_named_is_not_loaded(store, lake):
    """Ids of segments and batches are no keys: each load asks for the tenant, too."""
    mine, theirs = [(await add_org(store, slug)).id for slug in ("mine", "theirs")]
    async with store.write() as work:
        await append(work.session, theirs, [sample_row(START)], now=work.now)
    await seal(store, lake, theirs, "seg_1")
    async with store.write() as work:
        await append(work.session, theirs, [sample_row(START)], now=work.now)

    async with store.read() as session:
        ids = await within(session, list_ids, theirs)
        seqs = await within(session, list_seqs, theirs)
        assert ids
        assert seqs
        assert await within(session, load_segments, mine, ids) == {}
        assert await within(session, load_batches, mine, seqs) == {}
        assert not set(await within(session, list_ids, mine)) & set(ids)
        assert not set(await within(session, list_seqs, mine)) & set(seqs)
