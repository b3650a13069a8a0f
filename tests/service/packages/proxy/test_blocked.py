"""The page of a refused install, whose address package managers print."""

import re
from dataclasses import replace
from html import unescape
from urllib.parse import unquote

import pytest

from analytics.model.envelopes import CooldownActive
from service.packages.policy.model import PolicyDecision
from service.packages.proxy.blocked import SEGMENT_CHARS_MAX, blocked_path
from tests.conftest import World
from tests.service.packages.proxy.proxied import Proxied, deny, shown, wheel_of

AUDIT_ID = "aud_0000000000000000001"
PATH = (
    f"/proxy/acme/blocked/{AUDIT_ID}/@acme%2Flib/1.0.0%2Bbuild"
    "/on+the+blocklist:+advisory+MAL-2024-1"
)
WHY = "too+new:+published+yesterday"
COOLDOWN = CooldownActive(published_at="2026-03-01T08:00:00.000Z", min_age_days=7)
TOO_NEW = PolicyDecision(
    CooldownActive.event,
    COOLDOWN,
    is_blocked=True,
    is_enforced=True,
    rule_id=None,
    reason="too new: published yesterday",
)


async def test_a_script_gets_one_line(world: World):
    """No client repeats a 403; no credentials are asked for."""
    answer = await world.client.get(PATH)

    assert await shown(answer) == (
        403,
        "@acme/lib 1.0.0+build is blocked by the install policy of acme: on the blocklist: advisory"
        " MAL-2024-1"
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
    answer = await world.client.get(PATH, headers={"accept": "text/html"})
    page = await answer.get_data(as_text=True)

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "@acme/lib 1.0.0+build" in page
    assert f"/admin/ui/orgs/acme/audit/{AUDIT_ID}" in page


async def test_the_page_says_nothing_but_what_we_write(world: World):
    """Anyone could make its address: no text but a reason fits into it."""
    for path in (
        "aud_x/foo/1.0/too+new:+x",
        f"{AUDIT_ID}/foo/1.0/<script>",
        f"{AUDIT_ID}/foo/%3Cscript%3E/{WHY}",
        f"{AUDIT_ID}/<b>/1.0/{WHY}",
        f"{AUDIT_ID}/a/b/1.0/{WHY}",
        f"{AUDIT_ID}/foo/1.0/{WHY}{'a' * SEGMENT_CHARS_MAX}",
        f"{AUDIT_ID}/foo/1.0/{WHY}%0Aset-cookie:x",
        f"{AUDIT_ID}/foo/1.0/{WHY}%E2%80%AEx",
        f"{AUDIT_ID}/foo/1.0/{WHY}%250Aset-cookie:x",
        f"{AUDIT_ID}/foo/1.0/call+0900+now",
        f"{AUDIT_ID}/foo/1.0/",
        f"{AUDIT_ID}/foo",
    ):
        answer = await world.client.get(f"/proxy/acme/blocked/{path}")
        assert answer.status_code in {401, 404}, path
        assert "script" not in await answer.get_data(as_text=True)


RULES = {
    "plain": ({"id": "r1"}, "denied by rule r1"),
    "with a reason": (
        {"id": "r_1", "reason": "stolen release, see https://wiki.example/x?a=1#y (SEC-42)"},
        "denied by rule r_1: stolen release, see https://wiki.example/x?a=1#y (SEC-42)",
    ),
    "odd": ({"id": "r 1/ä?#", "reason": "<b>\"'&%"}, "denied by rule r 1/ä?#: <b>\"'&%"),
    "another script": (
        {"id": "é", "reason": "Пакет украден 🙈"},
        "denied by rule é: Пакет украден 🙈",
    ),
    "signs of escapes": (
        {"id": "c++", "reason": 'C++ 100% %2B %2525 a+b"/+'},
        'denied by rule c++: C++ 100% %2B %2525 a+b"/+',
    ),
    "dots": ({"id": "r1", "reason": "../../.."}, "denied by rule r1: ../../.."),
}


@pytest.mark.parametrize("case", RULES)
async def test_every_rule_leads_to_a_page_with_its_reason(proxied: Proxied, case: str):
    rule, reason = RULES[case]
    proxied.publishes("foo", wheel_of("foo", "1!1.0+local.1"))
    await proxied.policy(deny=[deny("pypi", "foo", **rule)])
    location = await refused_at(proxied)
    path = location.removeprefix("http://localhost:8080")
    error = (await shown(await proxied.client.get(path)))[1]
    html = await proxied.client.get(path, headers={"accept": "text/html"})

    assert re.fullmatch(r"[!-~]+", location)
    # Decoded once, as servers do that look for dots between slashes.
    assert unquote(path).count("/") == "/proxy/acme/blocked/aud/foo/1.0/reason".count("/")
    assert error.startswith(
        f"foo 1!1.0+local.1 is blocked by the install policy of acme: {reason} (audit row "
    )
    assert html.status_code == 403
    assert f"{reason[:1].upper()}{reason[1:]}." in unescape(await html.get_data(as_text=True))


async def test_a_long_reason_is_cut_in_the_address(proxied: Proxied):
    """Escapes could make the address too long for the proxies in front of a service."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    await proxied.policy(deny=[deny("pypi", "foo", id="r1", reason="ж" * 256)])
    location = await refused_at(proxied)
    page = await proxied.client.get(location.removeprefix("http://localhost:8080"))

    assert len(location) < 1_000
    assert "denied by rule r1: жжж" in (await shown(page))[1]
    assert location.endswith("...")


async def test_what_cannot_be_seen_is_replaced_in_the_address():
    """Ids of advisories are the text of others."""
    hostile = replace(TOO_NEW, reason="too new: a\n\u202eb\x1b[31m\ud800c")
    path = blocked_path("acme", AUDIT_ID, "foo", "1.0", hostile)

    assert path.endswith("/too+new:+a%EF%BF%BD%EF%BF%BDb%EF%BF%BD%5B31m%EF%BF%BDc")


@pytest.mark.parametrize("mode", ["enforce", "audit"])
async def test_another_rule_leaves_a_row_of_its_own(proxied: Proxied, mode: str):
    """Within ten minutes, too: the page of a refusal names its row, and that names the rule."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    path = await proxied.path_of("foo")
    for rule in ("r1", "r2", "r2", "r1"):
        await proxied.policy(deny=[deny("pypi", "foo", id=rule)], mode=mode)
        answer = await proxied.get(path)
        rows = await proxied.rows()
        named = [row["id"] for row in rows if row["payload"]["rule_id"] == rule]
        assert mode == "audit" or f"/{named[-1]}/" in answer.headers["location"]

    assert [row["payload"]["rule_id"] for row in rows] == ["r1", "r2"]


async def refused_at(proxied: Proxied) -> str:
    """Where a request for the file of foo is sent."""
    answer = await proxied.get(await proxied.path_of("foo"))
    assert answer.status_code == 302
    return str(answer.headers["location"])
