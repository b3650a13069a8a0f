"""A cursor continues the query it was made for, and no other."""

from dataclasses import replace
from datetime import timedelta

import pytest

from service.app.composition import build_services
from service.core.secrets import derive_key
from service.web.dependencies import provide
from tests.analytics.samples import sample_row
from tests.conftest import START, refused

REFUSED = (400, "cursor is not valid for this query")


@pytest.fixture
async def cursor(audit):
    """A cursor into acme's blocked rows, which is good for its own query."""
    await audit.accept([sample_row(START - timedelta(seconds=n)) for n in range(20)])
    page = await audit.page(decision="BLOCKED", limit=5)
    assert (await audit.get(decision="BLOCKED", cursor=page["next_cursor"])).status_code == 200
    return page["next_cursor"]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"decision": "BLOCKED", "since": "2026-03-04"},
        {"decision": "BLOCKED", "order": "asc"},
    ],
)
async def test_a_cursor_is_refused_with_another_query(audit, cursor, query):
    assert await refused(await audit.get(cursor=cursor, **query)) == REFUSED


async def test_a_cursor_continues_its_query_however_that_is_spelt(audit, cursor):
    plain = await audit.page(decision="BLOCKED", cursor=cursor, limit="7")
    spelt = await audit.page(decision=["BLOCKED", "BLOCKED"], cursor=cursor, limit="7")

    assert spelt["entries"] == plain["entries"]
    assert len(spelt["entries"]) == 7


async def test_retention_that_moves_on_does_not_break_a_cursor(audit, cursor):
    """The floor narrows what is shown; it is no part of the query."""
    audit.clock.now += timedelta(hours=1)

    assert (await audit.get(decision="BLOCKED", cursor=cursor)).status_code == 200


async def test_a_cursor_that_was_edited_or_made_up_is_refused(audit, cursor):
    """One text for all of it: a reason would only help a forger."""
    for wrong in ("", cursor[:-1], cursor + " ", cursor.swapcase(), "é", "\x00", "A" * 5000):
        assert await refused(await audit.get(decision="BLOCKED", cursor=wrong)) == REFUSED


async def test_a_cursor_is_refused_in_another_organisation(audit, cursor):
    response = await audit.get(slug="other", decision="BLOCKED", cursor=cursor)

    assert await refused(response) == REFUSED


async def test_a_cursor_is_refused_by_a_service_with_another_secret(audit, cursor):
    """The key is derived from SECRET_KEY for this one purpose."""
    settings = audit.services.settings
    other_key = derive_key("another-secret-key-of-at-least-32-characters", "audit cursor")
    assert derive_key(settings.secret_key, "audit cursor") != other_key
    log = audit.services.audit_queries
    foreign = type(log)(audit.services.store, audit.services.lake, other_key)
    provide(audit.world.app, replace(audit.services, audit_queries=foreign).groups())

    response = await audit.get(decision="BLOCKED", cursor=cursor)

    assert await refused(response) == REFUSED


async def test_a_restarted_service_takes_the_cursors_it_gave_out(audit, cursor):
    """A deployment must not break a script in the middle of its pages."""
    restarted = build_services(audit.services.settings, audit.clock)
    provide(audit.world.app, restarted.groups())

    try:
        assert (await audit.get(decision="BLOCKED", cursor=cursor)).status_code == 200
    finally:
        await restarted.close()
