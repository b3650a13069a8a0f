"""The alerts page: a rule is tried before it is created, and people handle what fired."""

from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.pages.page import ORG, Page, send_form
from tests.service.pages.people.desk import HOSTILE, fault_of, get, leads_to, logged, see

TRIAL = "alerts?name=Blocked&query=decision%3DBLOCKED&at_least=2&window=5m"


async def accept(world, *rows):
    async with world.services.store.write() as work:
        work.journal.add(world.acme.id, list(rows))


async def test_a_rule_is_tried_then_created_then_fires_and_is_closed(world):
    await accept(world, sample_row(START), sample_row(START))
    tried = await see(world, TRIAL)
    assert tried.one("h2", id="try").text == "Would have fired 1 time in 30 days"

    created = await send_form(world, tried, f"{ORG}/alerts")
    assert leads_to(created).endswith("/alerts?done=created")
    await accept(world, sample_row(START), sample_row(START))
    await world.services.alerts.watch_due()
    page = await see(world, "alerts", "auditor")
    (action,) = [path for path in page.forms if path.endswith("/handle")]
    closed = await send_form(world, page, action, "auditor", state="closed", note="Known")

    assert leads_to(closed).endswith("/alerts?done=closed")
    assert not [path for path in (await see(world, "alerts")).forms if path.endswith("/handle")]
    assert [event for event, _, _ in await logged(world)][:2] == ["alert_handled", "alert_fired"]


async def test_a_wrong_rule_is_said_at_its_field_with_what_was_typed(world):
    answer = await get(world, "alerts?name=x&query=colour%3Dred&window=5s&at_least=many")
    assert answer.status_code == 400
    answer = await get(world, "alerts?name=x&query=package%3Da&window=5s")
    page = Page(await answer.get_data(as_text=True))
    assert "window must be whole minutes" in fault_of(page, "rule-window")
    assert page.one("input", id="rule-window").attributes["value"] == "5s"


async def test_a_search_becomes_a_rule_without_its_time(world):
    page = await see(world, "audit?decision=BLOCKED&last=7d")
    (link,) = [one for one in page.all("a") if one.text == "Alert on this search"]
    form = await see(world, link.attributes["href"].split("/")[-1].partition("#")[0])
    assert form.one("input", id="rule-query").attributes["value"] == "decision=BLOCKED"


async def test_what_is_shipped_is_one_click_from_a_trial(world):
    page = await see(world, "alerts")
    links = [one.attributes["href"] for one in page.all("a") if one.text == "New owner"]
    tried = await get(world, links[0].split("/")[-1].partition("#")[0])
    assert tried.status_code == 200


async def test_only_those_who_may_change_rules_see_how(world):
    page = await see(world, TRIAL, "auditor")
    assert f"{ORG}/alerts" not in {path for path in page.forms if path}
    assert (await get(world, "alerts", "member")).status_code == 403


async def test_hostile_text_is_text(world):
    page = await see(world, "alerts?name=x&query=" + "decision%3DBLOCKED")
    await send_form(world, page, f"{ORG}/alerts", name=HOSTILE)
    await accept(world, sample_row(START, actor=HOSTILE))
    shown = await get(world, "alerts")
    assert "<script>alert(1)" not in await shown.get_data(as_text=True)
