"""What a filter's field completes to."""

from typing import Any

import pytest

from service.audit.refusals import QueryTooSlow
from service.audit.tenant_log import TenantLog
from service.orgs.organisations import set_tier
from service.pages import audit_page
from tests.conftest import BY_OPERATOR, World, refused
from tests.service.pages.page import AUDIT, add_install, open_page

VALUES = f"{AUDIT}/values"


async def ask(world: World, who: str = "auditor", slug: str = "acme", **query: Any) -> Any:
    headers = world.session(who) if who else world.admin
    return await world.client.get(
        VALUES.replace("acme", slug), headers=headers, query_string={"name": "package"} | query
    )


async def offered(world: World, prefix: str, who: str = "auditor", **query: Any) -> list[str]:
    """What the field offers once this is typed."""
    response = await ask(world, who, prefix=prefix, **query)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return (await response.get_json())["values"]


async def test_the_values_that_begin_with_what_is_typed_most_frequent_first(world):
    for name in ("left-hand", "left-pad", "left-pad", "right-pad", "Left"):
        await add_install(world, package_name=name)

    assert await offered(world, "left") == ["left-pad", "left-hand"]
    assert await offered(world, "left-h") == ["left-hand"]
    assert await offered(world, "nothing") == []


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("package", "package_name"),
        ("actor", "actor"),
        ("subject", "subject"),
        ("oidc_binding_id", "oidc_binding_id"),
    ],
)
async def test_each_field_completes_to_its_own_column(world, name, column):
    await add_install(world, **{column: "zz-1"})
    page = await open_page(world)

    assert await offered(world, "zz", name=name) == ["zz-1"]
    assert name in page.one("form", role="search").attributes["data-completed"].split()


async def test_what_is_offered_means_itself_when_it_is_sent(world):
    """A value may hold what means something in a filter; so may what is typed."""
    for name in ("odd*", "odd\\", "!odd"):
        await add_install(world, package_name=name)

    assert sorted(await offered(world, "odd")) == ["odd\\*", "odd\\\\"]
    assert await offered(world, "\\!o") == ["\\!odd"]
    assert sorted(await offered(world, "!odd")) == ["!odd\\*", "!odd\\\\"]
    page = await open_page(world, f"?package={(await offered(world, 'odd'))[0]}")
    assert len(page.row_ids) == 1


async def test_only_the_pages_own_window_is_looked_at(world):
    await add_install(world, package_name="left-before")
    world.clock.advance(hours=2)
    await add_install(world, package_name="left-now")
    page = await open_page(world, "?last=1h&package=left*")

    assert await offered(world, "left", last="1h") == ["left-now"]
    assert await offered(world, "left", until="2026-03-04T13:00:00Z") == ["left-before"]
    form = page.one("form", role="search")
    assert form.attributes["data-values"] == f"{VALUES}?last=1h"


async def test_nothing_past_retention_is_offered(world):
    """A name is a row, too."""
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    await add_install(world, package_name="left-bygone")
    world.clock.advance(days=7, seconds=1)

    assert await offered(world, "left", who="") == []


async def test_nothing_of_another_organisation_is_offered(world):
    await add_install(world, package_name="left-pad")

    response = await ask(world, "stranger", "other", prefix="left")
    assert (await response.get_json())["values"] == []
    assert (await ask(world, "stranger", prefix="left")).status_code == 403


async def test_no_more_than_a_screen_of_values_is_offered(world, monkeypatch):
    """More typing finds others."""
    monkeypatch.setattr(audit_page, "COMPLETIONS_MAX", 2)
    for number in range(3):
        await add_install(world, package_name=f"left-{number}")

    assert await offered(world, "left") == ["left-0", "left-1"]


async def test_what_is_not_found_in_time_is_no_empty_list(world, monkeypatch):
    """The field keeps what it offers."""
    allowed = []

    async def slow(self, query, column, limit, time_max_s):
        allowed.append(time_max_s)
        raise QueryTooSlow

    monkeypatch.setattr(TenantLog, "values", slow)

    assert (await ask(world, prefix="left")).status_code == 503
    assert allowed == [audit_page.COMPLETION_MAX_S]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"name": "payload"}, "name must be one of package, actor, subject, oidc_binding_id"),
        ({"prefix": ""}, "package must not be empty"),
        ({"prefix": "!"}, "package must not be empty"),
        ({"prefix": "x" * 1025}, "prefix must be at most 1024 characters"),
        (
            {"prefix": "x", "last": "2y"},
            "last must be a number of minutes, hours, days or weeks, such as 90m, 24h or 7d",
        ),
        ({"prefix": "x", "event": "y"}, "unknown query parameter: event"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_means_nothing_is_refused(shared_world, query, said):
    """An empty beginning would be every value there is."""
    assert await refused(await ask(shared_world, **query)) == (400, said)
