"""The policy page: what is in force, who changed it, and changes in two steps."""

import json
import re

import pytest

from service.packages.policy.document import DOCUMENT_EXAMPLE
from service.packages.policy.repository import REVISIONS_KEPT
from tests.conftest import World, grant
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load
from tests.service.pages.page import ORG, send, shown
from tests.service.pages.people.desk import actor, get, leads_to, logged, see
from tests.service.pages.policy.desk import (
    LEFT_PAD,
    POLICY,
    PREVIEW,
    RULE,
    change,
    csrf,
    in_force,
    preview,
    put,
    save,
)


async def test_without_a_policy_the_page_says_what_holds(world: World):
    page = await see(world, "policy")

    assert "No policy was set yet" in page.html
    assert "None was imported yet" in page.one("section", id="blocklist").text
    assert page.one("section", id="cooldown").text.count("None") == 1
    assert page.one("a", **{"aria-current": "page"}).text == "Policy"


async def test_what_is_in_force_is_said_in_words(world: World):
    await put(world, DOCUMENT_EXAMPLE)
    page = await see(world, "policy")

    assert "npm.acme.example" in page.one("section", id="first-party").text
    rule = page.one("tr", id="deny-0").text
    assert all(text in rule for text in ("left-pad", "<1.3.0", "String.padStart", "left-pad-old"))
    assert "all versions" not in rule
    assert "7 days" in page.one("section", id="cooldown").text
    sections = [one.attributes.get("id") for one in page.all("section")]
    assert [name for name in sections if name] == [
        "first-party",
        "deny",
        "blocklist",
        "trust",
        "allow",
        "cooldown",
    ]


async def feeds(world: World) -> tuple[str, list[list[str]]]:
    """The text of the section, and the cells of each row of its table."""
    page = await see(world, "policy")
    text = " ".join(page.one("section", id="blocklist").text.split())
    inner = page.html[page.html.index('id="blocklist"') : page.html.index('id="allow"')]
    cell = re.compile(r'data-label="[^"]*"><span class="cut">(.*?)</span></t[hd]>')
    rows = [cell.findall(row) for row in inner.split("<tr")[2:]]
    return text, rows


async def test_each_feed_of_the_blocklist_is_shown_with_its_size_and_age(world: World):
    await load(world.services.store, osv_zip([osv_record("MAL-2026-1")]))

    text, ((feed, ecosystem, ids, advisories, modified, imported),) = await feeds(world)

    assert (feed, ecosystem, advisories) == ("osv", "npm", "1")
    assert "MAL-*" in ids
    assert "2026-01-01" in modified
    assert "2026-03-04" in imported
    assert "None was imported for PyPI yet." in text
    assert "stale" not in text


async def test_a_stale_feed_is_named_with_the_remedy(world: World):
    world.clock.advance(days=-8)
    store = world.services.store
    await load(store, osv_zip([osv_record("MAL-1"), osv_record("MAL-2", "p", "PyPI")]))
    world.clock.advance(days=8)
    await load(store, osv_zip([osv_record("MAL-3", "p", "PyPI")]))

    text, rows = await feeds(world)

    assert [(row[1], "stale" in row[-1]) for row in rows] == [("npm", True), ("PyPI", False)]
    assert "imports its newest archive with countersign blocklist import" in text


async def test_a_rule_is_previewed_and_then_saved(world: World):
    page = await shown(await preview(world, "add_deny", 0, **RULE))
    before = await in_force(world)
    answer = await save(world, page)

    assert "npm:left-pad@<1.3.0" in page.one("dd", **{"class": "new"}).text
    assert before == (0, {})
    assert leads_to(answer) == f"{POLICY}?done=saved"
    assert (await in_force(world))[1]["deny"][0]["package"] == "left-pad"
    assert (await logged(world))[0][:2] == ("policy_changed", actor(world, "owner"))
    assert (await see(world, "policy?done=saved")).one("p", role="status").text.startswith("Saved.")


async def test_each_form_changes_its_part(world: World):
    await change(world, "mode", 0, mode="audit")
    await change(world, "cooldown", 1, min_age_days="7", exempt="pypi:acme-*")
    await change(
        world, "add_first_party", 2, ecosystem="npm", package="@acme/*", registry="npm.acme.example"
    )
    await change(world, "add_allow", 3, **RULE)
    await change(world, "remove", 4, part="allow", entry="npm:left-pad@<1.3.0")
    await change(world, "document", 5, document=json.dumps({"mode": "enforce"}))

    assert await in_force(world) == (
        6,
        {"mode": "enforce", "first_party": [], "deny": [], "allow": [], "cooldown": None},
    )
    assert len(await world.audit(event="policy_changed")) == 6


async def test_the_page_links_each_revision_to_its_audit_row(world: World):
    """Which says what was before; the member is named by address."""
    await change(world, "add_deny", 0, **RULE)
    page = await see(world, "policy")
    (row,) = await world.audit(event="policy_changed")

    assert page.link("audit row of revision 1") == f"{ORG}/audit/{row['id']}"
    assert "owner@acme.example" in page.html


async def test_rows_are_not_linked_for_those_who_may_not_read_them(world: World):
    """Who changed what is in the policy's own revisions; the log is another right."""
    await grant(world, "member", "policy:r")
    await put(world, {"deny": [LEFT_PAD]})
    await put(world, {})
    page = await see(world, "policy", "member")

    assert "Revision 1" in page.html
    assert "/audit" not in page.html


async def test_an_earlier_revision_can_be_seen_and_put_in_force_again(world: World):
    for document in ({"deny": [LEFT_PAD]}, {"mode": "audit"}, {}):
        await put(world, document)
    page = await see(world, "policy?revision=2")
    assert "no longer in force" in page.one("div", role="status").text
    gone = [one.text for one in page.all("dd", **{"class": "gone"})]
    assert gone[0] == "removed: enforce"
    assert "old-pad" in gone[1]
    assert page.one("dd", **{"class": "new"}).text == "added: audit"

    answer = await send(world, PREVIEW, page.forms[PREVIEW])
    leads_to(await save(world, await shown(answer)))

    assert (await in_force(world))[1]["mode"] == "audit"
    assert (await in_force(world))[0] == 4
    for number, status in (("99", 404), ("0", 400), ("x", 400)):
        assert (await get(world, f"policy?revision={number}")).status_code == status


async def test_a_change_of_nothing_has_no_button(world: World):
    page = await shown(await preview(world, "mode", 0, mode="enforce"))

    assert POLICY not in page.forms
    assert "what the policy says already" in page.html


async def test_a_concurrent_change_is_shown_and_loses_nothing(world: World):
    page = await shown(await preview(world, "add_deny", 0, **RULE))
    await put(world, {"cooldown": {"min_age_days": 9}})
    again = await shown(await save(world, page), 412)

    assert "the policy changed meanwhile" in again.one("div", role="alert").text
    assert "9 days" in again.html
    assert again.forms[POLICY]["package"] == "left-pad"
    leads_to(await save(world, again))
    number, document = await in_force(world)
    assert number == 2
    assert document["cooldown"]["min_age_days"] == 9
    assert [rule["package"] for rule in document["deny"]] == ["left-pad"]


async def test_a_form_older_than_the_policy_shows_what_it_would_undo(world: World):
    """A whole document replaces everything, so its preview compares it with what is in force."""
    await put(world, {"deny": [LEFT_PAD]})
    page = await shown(await preview(world, "document", 0, document='{"mode": "audit"}'))

    assert "replaces it as a whole" in page.one("div", role="status").text
    gone = [one.text for one in page.all("dd", **{"class": "gone"})]
    assert any("old-pad" in text for text in gone)
    assert page.forms[POLICY]["replaces"] == "1"


async def test_an_entry_that_is_gone_is_said_so(world: World):
    """As two people may remove the same rule."""
    await put(world, {"deny": [LEFT_PAD]})
    page = await shown(await preview(world, "remove", 1, part="deny", entry="other"), 400)

    assert "it may be removed by now" in page.one("div", role="alert").text


async def test_who_may_read_but_not_change_gets_no_form(world: World):
    await grant(world, "auditor", "policy:r")
    await put(world, {"deny": [LEFT_PAD]})
    page = await see(world, "policy", "auditor")
    answer = await preview(world, "mode", 1, "auditor", mode="audit")

    assert PREVIEW not in page.forms
    assert "Remove" not in page.html
    assert "Missing capability: policy:w" in (await shown(answer, 403)).html
    assert (await get(world, "policy", "admin")).status_code == 403


async def test_who_may_change_but_not_read_saves_blind(world: World):
    """The preview shows the policy, so it needs the right to read it; saving does not."""
    await grant(world, "admin", "policy:w")
    fields = await csrf(world, "admin") | {"kind": "mode", "mode": "audit", "replaces": "0"}

    assert (await send(world, PREVIEW, fields, "admin")).status_code == 403
    assert leads_to(await send(world, POLICY, fields, "admin")) == ORG
    assert (await in_force(world))[1]["mode"] == "audit"


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "nothing"},
        {},
        {"kind": "mode"},
        {"kind": "mode", "mode": "audit", "replaces": "-1"},
    ],
)
async def test_a_form_that_no_page_has_is_refused(world: World, fields):
    answer = await send(world, PREVIEW, await csrf(world) | {"replaces": "0"} | fields)

    assert answer.status_code == 400
    assert await in_force(world) == (0, {})


async def test_many_revisions_are_folded(world: World):
    for number in range(12):
        await put(world, {"cooldown": {"min_age_days": number + 1}})
    page = await see(world, "policy")

    assert "2 earlier revisions" in page.html
    assert page.link("Revision 1") == f"{POLICY}?revision=1"
    assert REVISIONS_KEPT > 12
