"""The overview, as a browser without scripts receives it."""

import random
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from analytics.model.alert_envelopes import AlertFired, AlertHandled
from analytics.model.envelopes import (
    ADMIN_EVENTS,
    EVENTS,
    ArtifactChanged,
    BlocklistHit,
    CooldownActive,
    InstallAllowed,
    InstallCut,
    InstallWouldBlock,
    OssFirstParty,
    ReleaseWithdrawn,
    TrustDowngraded,
)
from analytics.model.errors import StoreFault
from analytics.model.log_envelopes import (
    AuditExported,
    AuditExportFinished,
    AuditRead,
    AuditReviewed,
    AuditSqlRun,
)
from analytics.model.org_envelopes import (
    DeviceSignInSucceeded,
    LinkSignInSucceeded,
    OauthLoginSucceeded,
    PasskeyAuthenticationSucceeded,
    SignedOut,
    SignInFailed,
)
from analytics.model.policy_envelopes import InstallsMatched, PolicyExceptionRequested
from analytics.model.rows import AuditRow
from service.app.application import create_app
from service.audit.refusals import QueryTooSlow
from service.audit.tenant_log import TenantLog
from service.orgs.organisations import hold, set_tier
from service.store.journal import append
from service.store.tables import Binding
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, World, grant, unscoped_key
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records
from tests.service.pages.page import ORG, Page, add_install, open_page, send_form
from tests.service.trust.rejected.notes import rejection, remember

BLOCK = BlocklistHit(rule_id="MAL-1", source="osv")


async def overview(world: World, name: str = "owner") -> Page:
    return await open_page(world, ORG, **world.session(name))


def words(page: Page) -> str:
    """The text of the page with its spaces made single."""
    return " ".join(page.one("main").text.split())


async def reject(world: World, sub: str, hours_ago: int) -> None:
    """Remember that a CI subject was rejected by acme."""
    at = world.clock.now - timedelta(hours=hours_ago)
    await remember(world, rejection(world.acme.id, sub=sub, at=at))


# 30 days


async def install_often(world: World, draw: random.Random, names: list[str]) -> list[AuditRow]:
    """Rows of installs and others over 70 days, in acme's log."""
    rows = []
    for _ in range(900):
        event = draw.choice(["install_allowed", "install_allowed", "blocklist_hit", "x"])
        decision = {"install_allowed": "ALLOWED", "blocklist_hit": "BLOCKED"}.get(event)
        at = world.clock.now - timedelta(days=draw.uniform(0, 70))
        name = draw.choice(names)
        rows.append(sample_row(at, event=event, decision=decision, package_name=name))
    async with world.services.store.write() as work:
        await append(work.session, world.acme.id, rows, now=world.clock.now)
    return rows


def counted(rows: list[AuditRow], since: int, until: int, **values: str) -> int:
    """How many rows with these values there are of whole days, counted back from today."""
    return sum(
        until < (START.date() - row.created_at.date()).days <= since
        and all(getattr(row, name) == value for name, value in values.items())
        for row in rows
    )


async def test_trends_are_those_of_all_rows_by_brute_force(world, monkeypatch):
    """Of generated rows, with links to exactly the rows that are counted."""
    rows = await install_often(world, random.Random(3), ["a", "b"])
    page = await overview(world)
    trends = page.all("a")
    for title, decision in (("Let through", "ALLOWED"), ("Blocked", "BLOCKED")):
        (trend,) = [one for one in trends if one.text.startswith(title)]
        now, before, today = (
            counted(rows, *days, decision=decision) for days in ((30, 0), (60, 30), (0, -1))
        )
        change = f"{100 * (now - before) / before:+.0f} %"
        assert " ".join(trend.text.split()) == (
            f"{title}{now} {change} from {before}, {today} today"
        )
        query = dict(parse_qsl(urlsplit(trend.attributes["href"]).query))
        assert len(await world.audit(**query)) == now


async def test_movers_are_the_packages_that_changed_most_by_brute_force(world, monkeypatch):
    names = [f"p{number}" for number in range(12)]
    rows = await install_often(world, random.Random(4), names)
    await add_install(world, package_name="brand-new")
    world.clock.advance(days=1)
    rows.append(sample_row(START, decision="ALLOWED", package_name="brand-new"))

    def change(name: str) -> tuple[int, int]:
        of = {"decision": "ALLOWED", "package_name": name}
        return counted(rows, 29, -1, **of), counted(rows, 59, 29, **of)

    changes = {name: change(name) for name in [*names, "brand-new"]}
    expected = sorted(changes, key=lambda name: (-abs(changes[name][0] - changes[name][1]), name))
    page = await open_page(world, ORG, **world.admin)
    shown = [row.text.split() for row in page.all("tr", role="row")]
    movers = [tuple(line[:3]) for line in shown if line[0] in changes and line[1].isdigit()]

    assert movers == [(name, *map(str, changes[name])) for name in expected[:7]]
    assert "New or returning packages1 brand-new: not installed in the 30 days" in words(page)


async def test_beyond_retention_nothing_is_compared(world):
    """Rows that are past it are not there: their number is not 0."""
    await install_often(world, random.Random(3), ["a"])
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "team", BY_OPERATOR)
    page = await overview(world)

    assert " from " not in page.one("div", **{"class": "card trends"}).text


async def test_rejected_jobs_are_compared_with_those_of_the_30_days_before(world, monkeypatch):
    """A job that is rejected since long ago is none of the new ones."""
    for name, days in (("old", (59, 1)), ("a", (59,)), ("b", (31,)), ("new", (29, 2)), ("x", (1,))):
        for ago in days:
            await reject(world, f"repo:acme/{name}:ref:refs/heads/main", 24 * ago)
    rejected = "Rejected CI jobs3 in 30 days"

    assert f"{rejected}, 2 of them new: -33 % from 3 in the 30 before" in words(
        await overview(world)
    )
    monkeypatch.setattr("service.pages.overview.ENTRIES_PER_ORG_MAX", 5)
    assert "in the 30 before" not in words(await overview(world))
    assert rejected in words(await overview(world))


async def test_a_job_that_is_rejected_since_long_ago_is_not_new(world):
    for days in (61, 1):
        await reject(world, "repo:acme/old:ref:refs/heads/main", 24 * days)

    assert "Rejected CI jobs1 in 30 days, none of them new" in words(await overview(world))


async def test_who_installed_links_to_exactly_those_rows(world):
    for actor in ("key_1", "key_1", "key_2"):
        await add_install(world, actor=actor, subject=f"repo:acme/{actor}")
    await add_install(world, BLOCK, actor="key_1")
    world.clock.advance(days=1)
    page = await open_page(world, ORG, **world.admin)

    for name in ("key_1", "repo:acme/key_1"):
        assert len((await open_page(world, page.facet(name), **world.admin)).row_ids) == 2


async def test_the_latest_changes_are_those_of_the_organisation_itself(world):
    await world.create()
    world.clock.advance(hours=30)
    await add_install(world, package_name="lodash")
    page = await open_page(world, ORG, **world.admin)
    changes = page.one("ul", **{"class": "said"}).text
    (shown, *_) = await world.audit(event="oidc_binding_created")

    assert "system:admin-token: Binding created" in changes
    assert shown["id"] in page.link("Binding created")
    assert "lodash" not in changes
    listed = await open_page(world, page.link("All changes"), **world.admin)
    assert "Install allowed" not in listed.log.text


async def test_a_change_names_who_made_it(world):
    await world.create(headers=world.session("owner"))
    page = await open_page(world, ORG, **world.session("owner"))
    actor = f"github:{world.members['owner'].id}"

    assert page.one("span", title=actor).text == "owner"


def test_changes_are_all_that_is_no_install_no_sign_in_and_no_export():
    """An event that is new is a change unless declared otherwise."""
    assert set(EVENTS) - set(ADMIN_EVENTS) == {
        OssFirstParty.event,
        InstallAllowed.event,
        BlocklistHit.event,
        CooldownActive.event,
        InstallWouldBlock.event,
        InstallCut.event,
        ArtifactChanged.event,
        TrustDowngraded.event,
        ReleaseWithdrawn.event,
        InstallsMatched.event,
        PolicyExceptionRequested.event,
        OauthLoginSucceeded.event,
        PasskeyAuthenticationSucceeded.event,
        LinkSignInSucceeded.event,
        DeviceSignInSucceeded.event,
        SignInFailed.event,
        SignedOut.event,
        AuditExported.event,
        AuditExportFinished.event,
        AuditSqlRun.event,
        AuditRead.event,
        AuditReviewed.event,
        AlertFired.event,
        InstallsMatched.event,
        AlertHandled.event,
    }


async def test_routine_sign_ins_are_one_line(world):
    """Among a hundred of them no change is seen."""
    for _ in range(3):
        await world.sign_in_link()
    page = await overview(world)
    changes = page.one("ul", **{"class": "said"}).text
    routine = page.link("Show them")
    listed = (await open_page(world, routine, **world.admin)).row_ids

    assert "Session issued" not in changes
    assert "Member added" in changes
    assert f"{len(listed)} sign-ins, sign-outs and install tokens are left out." in words(page)


async def test_an_organisation_without_rows_says_so(world):
    page = await open_page(world, ORG, **world.admin)

    assert "No installs in this time." in words(page)


async def test_what_is_past_retention_is_no_part_of_it(world):
    world.clock.advance(days=7, seconds=1)
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    page = await open_page(world, ORG, **world.admin)

    assert "Tier changed" in words(page)
    assert "Member added" not in words(page)


async def test_another_organisations_rows_are_no_part_of_it(world):
    await add_install(world, BLOCK, package_name="evil-pad")
    await world.create()
    await reject(world, "repo:acme/x", 1)
    page = await open_page(world, "/admin/ui/orgs/other", **world.session("stranger"))

    assert "evil-pad" not in page.html
    assert attention(page) == {}
    assert "Rejected CI jobs0" in words(page)


@pytest.mark.parametrize("question", ["summary", "values", "page"])
@pytest.mark.parametrize(
    ("error", "said"),
    [(QueryTooSlow(), "took too long"), (StoreFault("damaged"), "missing or damaged")],
    ids=["slow", "damaged"],
)
async def test_a_part_that_cannot_be_had_is_said_to_be_missing(
    world, monkeypatch, question, error, said
):
    """The others are shown all the same, and never an empty list in its place."""
    await add_install(world)

    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(TenantLog, question, fail)
    page = await overview(world)

    assert said in words(page)
    assert "Who installed" in words(page)


# What needs attention


STEPS = {"Issue an API key", "Trust a CI job", "Send the first row", "Invite a second owner"}


def lines(page: Page) -> dict[str, str]:
    """The links of what needs attention, by what they are about."""
    links = [one for one in page.all("a") if one.attributes.get("class") == "button"]
    return {
        one.text.partition(": ")[2]: one.attributes["href"] for one in links if ": " in one.text
    }


def attention(page: Page) -> dict[str, str]:
    """The same without the first steps of an organisation."""
    return {title: href for title, href in lines(page).items() if title not in STEPS}


async def test_a_release_that_got_through_before_its_rule(world):
    """Not one that was blocked first, nor one that was never installed."""
    for name, blocks in (("early", (False, False, True)), ("late", (True, False)), ("x", (True,))):
        for is_blocked in blocks:
            world.clock.advance(minutes=1)
            event = [BLOCK] if is_blocked else []
            await add_install(world, *event, package_name=name, version="1.0", ecosystem="npm")
    page = await overview(world)
    (link,) = attention(page).values()

    assert link == f"{ORG}/packages?name=early&ecosystem=npm&version=1.0"
    assert "early 1.0 was installed" in words(page)
    assert "2 installs before a rule blocked it, 1 times since." in words(page)
    assert list(attention(await overview(world, "auditor")).values()) == [link]
    assert (
        attention(await open_page(world, "/admin/ui/orgs/other", **world.session("stranger"))) == {}
    )


async def test_an_advisory_that_affects_past_installs(world):
    """For those who may read the log."""
    await add_install(world, package_name="evil", version="1.0", ecosystem="npm")
    await import_records(world, osv_record("MAL-1"))
    await world.services.retro.match_due()
    page = await overview(world, "auditor")

    assert lines(page)["MAL-1 affects past installs"] == f"{ORG}/affected/MAL-1"
    assert "1 installs of npm:evil." in words(page)
    assert "MAL-1" not in words(await overview(world, "member"))


async def test_a_rejected_job_is_one_click_from_its_binding(world):
    await reject(world, "repo:acme/a:ref:refs/heads/main", 1)
    await remember(world, rejection(world.acme.id, is_verified=False, sub="repo:forged/x:y"))
    found = attention(await overview(world))
    (path,) = found.values()

    assert list(found) == ["acme/a · main is rejected"]
    page = await open_page(world, path, **world.session("owner"))
    assert "repo:acme/a:ref:refs/heads/main" in page.html
    await grant(world, "member", "oidc:r")
    assert list(attention(await overview(world, "member")).values()) == [f"{ORG}/rejected"]


async def test_more_rejected_jobs_than_lines_are_counted(world):
    for number in range(5):
        await reject(world, f"repo:acme/{number}:ref:refs/heads/main", number)

    assert list(attention(await overview(world)))[-1] == "2 more CI jobs are rejected"


async def test_bindings_that_were_never_used_are_listed_by_their_count(world):
    """Needless trust. The link leads to exactly those."""
    for number in range(4):
        await world.create(repository_id=str(number + 1))
    used, revoked, *unused = await world.bindings()
    async with world.services.store.write() as work:
        binding = await work.session.get_one(Binding, used["id"])
        binding.last_used_at = world.clock.now
    await world.revoke(revoked["id"])
    link = attention(await overview(world))["2 bindings were never used"]
    listed = await open_page(world, link, **world.session("owner"))

    assert link == f"{ORG}/bindings?state=unused"
    assert set(listed.row_ids) == {one["id"] for one in unused}


async def test_a_key_that_expires_and_was_not_rotated(world):
    async with world.services.store.write() as work:
        for name, days in (("soon", 13), ("later", 15), ("gone", -1)):
            ends = world.clock.now + timedelta(days=days)
            key, _ = unscoped_key(world.acme.id, name=name, expires_at=ends)
            work.session.add(key)
    found = attention(await overview(world))

    assert list(found) == ["The API key soon expires"]
    listed = await open_page(world, found["The API key soon expires"], **world.session("owner"))
    assert "soon" in listed.html
    assert "The API key" not in words(await overview(world, "auditor"))


async def test_a_request_is_reached_by_who_asked_and_by_who_decides(world):
    """The member's own page, as the list of all requests is for readers of the policy."""
    asked = {"ecosystem": "npm", "package": "vite", "version": "1.2.3", "reason": "a fix"}
    path = f"{ORG}/policy/exceptions"
    new = await open_page(world, f"{path}/new", **world.session("member"))
    await send_form(world, new, f"{path}/new", "member", **asked)
    (link,) = attention(await overview(world, "member")).values()
    own = await open_page(world, link.partition("#")[0], **world.session("member"))
    assert link.startswith(f"{path}/new#pexc_")
    assert "waits for a decision" in words(own)
    assert attention(await overview(world, "auditor")) == {}

    (link,) = attention(await overview(world)).values()
    page = await open_page(world, link.partition("#")[0], **world.session("owner"))
    (decide,) = [action for action in page.forms if action.endswith("/decide")]
    await send_form(world, page, decide, "owner", decision="decline", reason="wait")
    assert attention(await overview(world)) == {}
    (title,) = attention(await overview(world, "member"))
    assert title == "An exception for vite 1.2.3 is declined"


# Who sees what


async def test_a_plain_member_reads_what_they_may_see_and_whom_to_ask(world):
    """A page of refusals would be of no help."""
    page = await overview(world, "member")

    assert "Your role is member." in words(page)
    assert "neither the audit log nor the trust bindings" in words(page)
    assert "owner@acme.example" in words(page)
    assert "owner@other.example" not in page.html
    assert page.one("nav", **{"aria-label": "Pages of acme"}).text.split() == ["Overview"]
    for part in ("Needs attention", "30 days", "Who changed what", "legal hold"):
        assert part not in words(page)


async def test_who_reads_the_log_alone_does_not_see_the_bindings(world):
    page = await overview(world, "auditor")

    assert "Who changed what" in words(page)
    assert "access to the audit log, but not to the trust bindings" in words(page)
    assert "Rejected CI jobs" not in words(page)


async def test_who_reads_the_bindings_alone_does_not_see_the_log(world):
    """Packages and people are in the log."""
    await grant(world, "member", "oidc:r")
    await world.create()
    await add_install(world, BLOCK, package_name="evil-pad")
    page = await overview(world, "member")

    assert "1 binding was never used" in words(page)
    assert "access to the trust bindings, but not to the audit log" in words(page)
    assert "evil-pad" not in page.html


async def test_who_sees_everything_is_told_of_no_owner(world):
    assert "Your access" not in words(await overview(world))


async def test_a_legal_hold_is_shown_with_its_reason(world):
    """It says why nothing is dropped."""
    before = await overview(world)
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await hold(work, acme, "case <b>4711</b>", BY_OPERATOR)
    after = await overview(world)

    assert "No legal hold." in words(before)
    assert "Under a legal hold since 2026-03-04 12:00 UTC" in words(after)
    assert "case <b>4711</b>" in words(after)


async def test_the_page_of_components_is_there_only_if_it_is_wanted(world):
    assert (await world.client.get("/admin/ui/components")).status_code == 404
    settings = msgspec.structs.replace(world.services.settings, components_page=True)
    client = create_app(settings, world.clock).test_client()
    page = Page(await (await client.get("/admin/ui/components")).get_data(as_text=True))

    assert page.one("h1").text == "Components"
    assert page.scripts == []


async def test_a_new_organisation_is_told_its_first_steps(world):
    """Those that are done are not; with the first install the list has served its purpose."""
    assert set(lines(await overview(world))) >= STEPS

    await world.create()
    assert STEPS & set(lines(await overview(world))) == STEPS - {"Trust a CI job"}

    await add_install(world, package_name="left-pad")
    assert not STEPS & set(lines(await overview(world)))


async def test_first_steps_are_for_those_who_can_take_them(world):
    """An auditor can do none of them."""
    assert not STEPS & set(lines(await overview(world, "auditor")))
