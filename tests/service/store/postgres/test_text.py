"""Text: which can be stored, and in which order it comes."""

import pytest
from sqlalchemy import func, select, text

from service.core.errors import NOT_STORABLE_TEXT
from service.store.migrate import migrate
from service.store.organisations import find_org
from service.store.store import Store
from service.store.tables import Base, Counter
from tests.conftest import START
from tests.postgres import PostgresServer
from tests.service.store.conftest import add_org
from tests.service.store.postgres.conftest import open_engines, open_store


async def test_text_that_cannot_be_stored_is_the_callers_error(store: Store):
    wrong = "a\ud800"
    for _ in range(3):
        with pytest.raises(NOT_STORABLE_TEXT):
            async with store.read() as session:
                await find_org(session, wrong)
        with pytest.raises(NOT_STORABLE_TEXT):
            async with store.write() as work:
                work.session.add(Counter(name=wrong, value=0))
    assert NOT_STORABLE_TEXT.status == 400
    assert await add_org(store, "acme")


@pytest.fixture
def norwegian(postgres: PostgresServer):
    """A database with a locale, as most installations make it."""
    name = "norwegian"
    with postgres.connect() as program:
        program.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu"
            " ICU_LOCALE 'nb-NO' LOCALE 'C.UTF-8'"
        )
    yield postgres.url(name)
    postgres.drop_database(name)


async def test_order_and_case_are_those_of_sqlite_whatever_the_locale(norwegian: str):
    """By code point: libraries cannot change the order."""
    engines = open_engines(norwegian)
    await migrate(engines)
    store = Store(engines, lambda: START)
    names = ["b", "a-b", "A", "ab", "aa", "Å", "å", "z"]
    async with store.write() as work:
        work.session.add_all([Counter(name=f"n{name}", value=0) for name in names])
    async with store.read() as session:
        ours = select(Counter.name).where(Counter.name > "n").order_by(Counter.name)
        listed = (await session.scalars(ours)).all()
        lowered = await session.scalar(select(func.lower(Counter.name)).where(Counter.name == "nÅ"))
    await store.close()

    assert listed == sorted(f"n{name}" for name in names)
    assert lowered == "nÅ"


async def test_every_text_column_is_ordered_by_code_point(norwegian: str):
    engines = open_engines(norwegian)
    await migrate(engines)
    async with engines.reader.connect() as connection:
        others = await connection.execute(
            text(
                "SELECT table_name, column_name FROM information_schema.columns"
                " WHERE table_schema = 'public' AND data_type IN ('text', 'character varying')"
                " AND collation_name IS DISTINCT FROM 'C' AND table_name = ANY(:ours)"
            ),
            {"ours": [*Base.metadata.tables]},
        )
        found = others.all()
    await engines.dispose()

    assert found == []


async def test_journal_batches_are_stored_as_they_are(postgres_url: str):
    """They are compressed already."""
    engines = open_engines(postgres_url)
    async with engines.reader.connect() as connection:
        stored = await connection.scalar(
            text(
                "SELECT attstorage::text FROM pg_attribute"
                " WHERE attrelid = 'journal'::regclass AND attname = 'data'"
            )
        )
    await engines.dispose()

    assert stored == "e"


async def test_json_with_a_nul_is_stored(postgres_url: str):
    """It is an escape there."""
    node = open_store(postgres_url, clock=lambda: START)
    org = await add_org(node, "acme")
    async with node.write() as work:
        found = await find_org(work.session, "acme")
        assert found is not None
        found.role_overrides = {"auditor": ["a\0b"]}
    async with node.read() as session:
        again = await find_org(session, "acme")
    await node.close()

    assert again is not None
    assert (again.id, again.role_overrides) == (org.id, {"auditor": ["a\0b"]})
