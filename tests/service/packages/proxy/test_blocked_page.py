"""The page of a refused install: its address alone for everyone, the row for who may read it."""

from typing import Any

import pytest

from analytics.model.envelopes import ArtifactChanged, BlocklistHit, CooldownActive
from service.packages.proxy.blocked import segment_of
from tests.conftest import World
from tests.service.pages.page import Page, add_install

HTML = {"accept": "text/html"}
TOO_NEW = CooldownActive(published_at="2026-03-01T08:00:00.000Z", min_age_days=7)
DENIED = BlocklistHit(rule_id="left-pad-old", source="operator")
CHANGED = ArtifactChanged(
    file_name="left-pad-1.0.0.tgz",
    sha256_before="ab" * 32,
    sha256_now=None,
    registry="https://npm.example/",
)
CHANGED_PATH = "left-pad/1.0.0/file+changed:+the+registry+offers+other+bytes"


async def blocked_row(world: World, envelope: Any, name: str = "left-pad") -> str:
    await add_install(world, envelope, package_name=name, version="1.0.0", ecosystem="npm")
    return str((await world.audit())[0]["id"])


async def open_page(
    world: World,
    audit_id: str,
    rest: str = "left-pad/1.0.0/too+new:+published+yesterday",
    **headers: str,
) -> Page:
    path = f"/proxy/acme/blocked/{audit_id}/{rest}"
    answer = await world.client.get(path, headers=HTML | headers)
    assert answer.status_code == 403
    assert answer.headers["cache-control"] == "private, no-store"
    return Page(await answer.get_data(as_text=True))


async def test_everyone_sees_what_the_address_says(world: World):
    audit_id = await blocked_row(world, TOO_NEW)
    page = await open_page(world, audit_id)

    assert "Too new: published yesterday." in page.html
    assert "left-pad" in page.html
    assert page.link("ask for an exception").startswith("/admin/ui/orgs/acme/policy/exceptions/new")
    for secret in ("2026-03-01", "7 days", "owner@acme.example", "key_1"):
        assert secret not in page.html


async def test_a_reader_of_the_log_sees_the_row(world: World):
    audit_id = await blocked_row(world, TOO_NEW)
    page = await open_page(world, audit_id, **world.session("auditor"))

    assert "Cooldown of 7 days" in page.one("dl").text
    assert "2026-03-01 08:00:00" in page.html
    assert "owner@acme.example" in page.html
    assert page.link("Open the audit row") == f"/admin/ui/orgs/acme/audit/{audit_id}"
    assert "Would it be allowed now?" not in page.html
    owner = await open_page(world, audit_id, **world.session("owner"))
    assert owner.link("Would it be allowed now?").endswith("package=left-pad&version=1.0.0")


async def test_a_rule_is_named_with_whose_it_is(world: World):
    """A member knows whom to ask."""
    own = await blocked_row(world, DENIED)
    rest = "left-pad/1.0.0/denied+by+rule+left-pad-old"
    page = await open_page(world, own, rest, **world.session("owner"))
    assert "left-pad-old of acme" in page.one("dl").text
    listed = BlocklistHit(rule_id="MAL-2026-1", source="osv")
    rest = "left-pad/1.0.0/on+the+blocklist:+advisory+MAL-2026-1"
    page = await open_page(world, await blocked_row(world, listed), rest, **world.session("owner"))

    assert "MAL-2026-1 of the operator’s blocklist" in page.one("dl").text
    assert "ask for an exception" not in page.html


async def test_a_file_that_changed_is_described_and_the_operator_named(world: World):
    """No rule of the organisation is against it, so no owner can lift it."""
    audit_id = await blocked_row(world, CHANGED)
    page = await open_page(world, audit_id, CHANGED_PATH, **world.session("auditor"))

    facts = page.one("dl").text
    assert "left-pad-1.0.0.tgz of https://npm.example/" in facts
    assert "ab" * 32 in facts
    assert "operator to accept the new file" in page.html
    for untrue in ("A rule of acme", "install policy of", "ask for an exception", "something else"):
        assert untrue not in page.html


async def test_a_rule_with_signs_of_escapes_is_that_of_its_row(world: World):
    row = await blocked_row(world, BlocklistHit(rule_id="c++ 5%", source="operator"))
    rest = f"left-pad/1.0.0/{segment_of('denied by rule c++ 5%')}"
    page = await open_page(world, row, rest, **world.session("owner"))

    assert "The audit row says something else." not in page.html


@pytest.mark.parametrize("who", ["member", "stranger"])
async def test_who_may_not_read_rows_sees_none(world: World, who: str):
    audit_id = await blocked_row(world, TOO_NEW)
    page = await open_page(world, audit_id, **world.session(who))

    assert "Cooldown of" not in page.html
    assert ("owner@acme.example" in page.html) is (who == "member")
    if who == "stranger":
        assert page.html == (await open_page(world, audit_id)).html


@pytest.mark.parametrize(
    ("rest", "envelope"),
    [
        ("lodash/1.0.0/too+new:+published+yesterday", TOO_NEW),
        ("left-pad/9.9.9/too+new:+published+yesterday", TOO_NEW),
        ("left-pad/1.0.0/denied+by+rule+r1:+call+0900", TOO_NEW),
        ("left-pad/1.0.0/denied+by+rule+r1:+call+0900", DENIED),
        ("left-pad/1.0.0/too+new:+published+yesterday", DENIED),
        (CHANGED_PATH, DENIED),
        ("left-pad/1.0.0/denied+by+rule+r1:+call+0900", CHANGED),
    ],
)
async def test_an_address_that_its_row_contradicts_is_said_so(world: World, rest: str, envelope):
    """Someone could send a link that says anything."""
    audit_id = await blocked_row(world, envelope)
    page = await open_page(world, audit_id, rest, **world.session("auditor"))

    assert "The audit row says something else." in page.one("div", role="status").text
    assert "Cooldown of" not in page.html


async def test_a_row_that_is_no_block_confirms_nothing(world: World):
    await add_install(world, package_name="left-pad", version="1.0.0", ecosystem="npm")
    audit_id = (await world.audit())[0]["id"]
    page = await open_page(world, audit_id, **world.session("auditor"))

    assert "The audit row says something else." in page.html


async def test_a_row_that_does_not_exist_is_said_so_to_readers_alone(world: World):
    """Others must not learn which rows there are."""
    known = await blocked_row(world, TOO_NEW)
    unknown = "aud_0000000000000009999"
    page = await open_page(world, unknown, **world.session("auditor"))
    anonymous = [(await open_page(world, one)).html for one in (known, unknown)]

    assert f"acme has no audit row {unknown}." in page.one("div", role="status").text
    assert anonymous[0].replace(known, "") == anonymous[1].replace(unknown, "")


async def test_a_row_of_another_organisation_is_none_of_this_one(world: World):
    audit_id = await blocked_row(world, TOO_NEW)
    path = f"/proxy/other/blocked/{audit_id}/left-pad/1.0.0/too+new:+published+yesterday"
    answer = await world.client.get(path, headers=HTML | world.session("stranger"))
    text = await answer.get_data(as_text=True)

    assert "Cooldown of" not in text
    assert "has no audit row" in text


async def test_a_package_manager_gets_the_same_as_before(world: World):
    audit_id = await blocked_row(world, TOO_NEW)
    path = f"/proxy/acme/blocked/{audit_id}/left-pad/1.0.0/too+new:+published+yesterday"
    answer = await world.client.get(path, headers=world.session("owner"))

    assert answer.status_code == 403
    assert (await answer.get_json())["error"] == (
        "left-pad 1.0.0 is blocked by the install policy of acme: too new: published yesterday"
        f" (audit row {audit_id})"
    )


async def test_an_address_that_is_not_ours_is_no_page(world: World):
    """Its text is shown on the page, so only addresses that the proxy made are accepted."""
    for rest in (
        "%3Cscript%3E/1.0.0/too+new:+published+yesterday",
        "left-pad/1.0.0/%22%3E",
        "left-pad/1%20x/too+new:+published+yesterday",
        "x/y",
    ):
        answer = await world.client.get(f"/proxy/acme/blocked/aud_0/{rest}", headers=HTML)
        assert answer.status_code == 404, rest
