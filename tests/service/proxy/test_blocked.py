"""The page of a refused install, whose address package managers print."""

from typing import Any

import pytest

from analytics.model.envelopes import CooldownActive
from analytics.model.events import Event
from service.policy.model import Decision
from service.proxy.blocked import blocked_path
from tests.conftest import World
from tests.service.proxy.proxied import Proxied, deny, shown, wheel_of

AUDIT_ID = "aud_0000000000000000001"
PATH = f"/proxy/acme/blocked/{AUDIT_ID}/@acme%2Flib/1.0.0%2Bbuild/denied-by-MAL-2024-1"
COOLDOWN = CooldownActive(published_at="2026-03-01T08:00:00.000Z", min_age_days=7)
TOO_NEW = Decision(
    Event.COOLDOWN_ACTIVE, COOLDOWN, is_blocked=True, is_enforced=True, rule_id=None, reason="new"
)


async def test_a_script_gets_one_line(world: World):
    """403, which no client repeats, with all that a log needs; no credentials are asked for."""
    answer = await world.client.get(PATH)

    assert await shown(answer) == (
        403,
        "@acme/lib 1.0.0+build is blocked by the install policy of acme: denied by MAL-2024-1"
        f" (audit row {AUDIT_ID})",
    )
    assert answer.headers["cache-control"] == "private, no-store"


async def test_each_name_that_a_registry_may_have_has_a_page(world: World):
    """Npm's older names have characters that need no escapes in a URL's path."""
    for name in ("hello!", "it's", "@a/b(c)", "a~b*", "Foo.Bar_baz"):
        path = blocked_path("acme", AUDIT_ID, name, "1.0.0", TOO_NEW)
        status, text = await shown(await world.client.get(path))
        assert (status, text.partition(" 1.0.0 is blocked")[0]) == (403, name)


async def test_a_person_gets_a_page(world: World):
    """With a link to the row, for those who may read it."""
    answer = await world.client.get(PATH, headers={"accept": "text/html"})
    page = await answer.get_data(as_text=True)

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "@acme/lib 1.0.0+build" in page
    assert f"/admin/ui/orgs/acme/audit/{AUDIT_ID}" in page


async def test_the_page_says_nothing_but_what_we_write(world: World):
    """Its address could be made by anyone: no free text fits into it."""
    for path in (
        "aud_x/foo/1.0/too-new",
        f"{AUDIT_ID}/foo/1.0/<script>",
        f"{AUDIT_ID}/foo/%3Cscript%3E/too-new",
        f"{AUDIT_ID}/<b>/1.0/too-new",
        f"{AUDIT_ID}/a/b/1.0/too-new",
        f"{AUDIT_ID}/foo/1.0/{'a' * 121}",
        f"{AUDIT_ID}/foo/1.0/call+0900+now",
        f"{AUDIT_ID}/foo",
    ):
        answer = await world.client.get(f"/proxy/acme/blocked/{path}")
        assert answer.status_code in {401, 404}, path
        assert "script" not in await answer.get_data(as_text=True)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"id": "r 1/ä?#", "reason": "<b>"}, "denied-by-r-1-"),
        ({"id": "é"}, "denied-by-"),
        ({"id": "x" * 100}, f"denied-by-{'x' * 100}"),
    ],
)
async def test_every_rule_leads_to_a_page(proxied: Proxied, rule: Any, words: str):
    """Whatever its id is."""
    proxied.publishes("foo", wheel_of("foo", "1!1.0+local.1"))
    await proxied.policy(deny=[deny("pypi", "foo", **rule)])
    answer = await proxied.get(await proxied.path_of("foo"))
    location = answer.headers["location"]
    page = await proxied.client.get(location.removeprefix("http://localhost:8080"))

    assert answer.status_code == 302
    assert location.endswith(f"/{words}")
    assert page.status_code == 403
    assert "foo 1!1.0+local.1" in (await page.get_json())["error"]
