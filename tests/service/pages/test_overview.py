"""The overview, as a browser without scripts receives it."""

from datetime import timedelta

import msgspec
import pytest

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
)
from analytics.model.errors import StoreFault
from analytics.model.log_envelopes import AuditExported, AuditExportFinished
from analytics.model.org_envelopes import (
    DeviceSignInSucceeded,
    LinkSignInSucceeded,
    OauthLoginSucceeded,
    PasskeyAuthenticationSucceeded,
    SignedOut,
    SignInFailed,
)
from analytics.model.policy_envelopes import PolicyExceptionRequested
from service.app.application import create_app
from service.audit.refusals import QueryTooSlow
from service.audit.tenant_log import TenantLog
from service.orgs.organisations import hold, set_tier
from service.store.tables import Binding
from tests.conftest import BY_OPERATOR, World, grant
from tests.service.pages.page import AUDIT, ORG, Page, add_install, open_page
from tests.service.trust.rejected.notes import rejection, remember

BLOCK = BlocklistHit(rule_id="MAL-1", source="osv")
DAY = "last=24h"


async def overview(world: World, name: str = "owner") -> Page:
    return await open_page(world, ORG, **world.session(name))


def words(page: Page) -> str:
    """The text of the page with its spaces made single."""
    return " ".join(page.one("main").text.split())


async def reject(world: World, sub: str, hours_ago: int) -> None:
    """Remember that a CI subject was rejected by acme."""
    at = world.clock.now - timedelta(hours=hours_ago)
    await remember(world, rejection(world.acme.id, sub=sub, at=at))


# The last day


async def test_the_last_day_is_summed_up_with_links_into_the_audit_page(world):
    await add_install(world, BLOCK, package_name="bygone")
    world.clock.advance(hours=25)
    for name in ("evil-pad", "evil-pad", "worse-pad"):
        await add_install(world, BLOCK, package_name=name)
    await add_install(world, package_name="lodash")
    page = await open_page(world, ORG, **world.admin)

    assert page.link("3 blocked") == f"{AUDIT}?{DAY}&decision=BLOCKED"
    assert page.link("1 allowed") == f"{AUDIT}?{DAY}&decision=ALLOWED"
    assert page.link("Open in the audit log") == f"{AUDIT}?{DAY}"
    assert page.link("evil-pad") == f"{AUDIT}?{DAY}&decision=BLOCKED&package=evil-pad"
    assert "lodash" not in page.html
    assert "bygone" not in page.html
    rows = await open_page(world, page.link("evil-pad"), **world.admin)
    assert len(rows.row_ids) == 2


async def test_a_bar_leads_to_its_time_on_the_audit_page(world):
    await add_install(world)
    page = await overview(world)
    (bar, *_) = page.all("a", tabindex="-1")

    assert bar.attributes["href"].startswith(f"{AUDIT}?since=")
    await open_page(world, bar.attributes["href"], **world.session("owner"))


async def test_ci_jobs_are_named_by_their_subject_and_others_by_their_actor(world):
    """A CI job's actor is the key it shares with all the others."""
    await add_install(world, actor_source="oidc_github", subject="repo:acme/a")
    await add_install(world, subject="no CI job", actor="key_2")
    page = await overview(world)

    assert page.link("repo:acme/a") == (
        f"{AUDIT}?{DAY}&actor_source=oidc_%2A&subject=repo%3Aacme%2Fa"
    )
    assert page.link("key_2") == f"{AUDIT}?{DAY}&actor=key_2"
    assert "no CI job" not in page.html


async def test_the_latest_changes_are_those_of_the_organisation_itself(world):
    await world.create()
    world.clock.advance(hours=30)
    await add_install(world, package_name="lodash")
    page = await open_page(world, ORG, **world.admin)
    rows = page.all("th", scope="row")
    (shown, *_) = await world.audit(event="oidc_binding_created")

    assert "Binding created" in [row.text for row in rows]
    assert len([row for row in rows if row.text]) <= 10 + 24
    assert shown["subject"] in page.html
    listed = await open_page(world, page.link("All changes"), **world.admin)
    assert "Install allowed" not in listed.log.text


async def test_a_change_names_who_made_it(world):
    await world.create(headers=world.session("owner"))
    page = await open_page(world, ORG, **world.session("owner"))
    actor = f"github:{world.members['owner'].id}"

    assert page.one("span", title=actor).text == "owner@acme.example"


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
        PolicyExceptionRequested.event,
        OauthLoginSucceeded.event,
        PasskeyAuthenticationSucceeded.event,
        LinkSignInSucceeded.event,
        DeviceSignInSucceeded.event,
        SignInFailed.event,
        SignedOut.event,
        AuditExported.event,
        AuditExportFinished.event,
    }


async def test_installs_are_counted_by_ecosystem(world):
    for name, ecosystem in (("left-pad", "npm"), ("lodash", "npm"), ("requests", "pypi")):
        await add_install(world, package_name=name, ecosystem=ecosystem)
    await add_install(world, BLOCK, package_name="evil", ecosystem="npm")
    await add_install(world, package_name="unnamed")
    page = await open_page(world, ORG, **world.session("auditor"))
    rows = await open_page(world, page.facet("npm"), **world.session("auditor"))

    assert page.facet("npm").startswith(f"{AUDIT}?last=24h")
    assert len(rows.row_ids) == 3
    assert (
        len((await open_page(world, page.facet("pypi"), **world.session("auditor"))).row_ids) == 1
    )


async def test_a_day_on_which_nothing_happened_says_so(world):
    """An empty drawing would look like a fault."""
    world.clock.advance(hours=25)
    page = await open_page(world, ORG, **world.admin)

    assert "No activity." in words(page)
    assert not page.all("svg", **{"class": "histogram"})


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
    assert "0 active" in words(page)
    assert "0 CI subjects rejected" in words(page)


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
    assert "Trust bindings" in words(page)


# Trust


async def test_bindings_are_counted_by_their_use(world):
    """An unused one is needless trust."""
    for number in range(4):
        await world.create(repository_id=str(number + 1))
    used, used_before, revoked, _ = await world.bindings()
    async with world.services.store.write() as work:
        for one, ago in ((used, 1), (used_before, 25)):
            binding = await work.session.get_one(Binding, one["id"])
            binding.last_used_at = world.clock.now - timedelta(hours=ago)
        gone = await work.session.get_one(Binding, revoked["id"])
        gone.revoked_at = world.clock.now
    page = await overview(world)

    assert page.link("3 active") == f"{ORG}/bindings?state=active"
    for said in ("3 active", "1 used in the last 24 hours", "1 never used"):
        assert said in words(page)


async def test_rejected_subjects_of_the_last_day_are_counted(world):
    await reject(world, "repo:acme/a", 1)
    await reject(world, "repo:acme/b", 23)
    await reject(world, "repo:acme/c", 25)

    page = await overview(world)

    assert page.link("2 CI subjects rejected in the last 24 hours") == f"{ORG}/rejected"


# Who sees what


async def test_a_plain_member_reads_what_they_may_see_and_whom_to_ask(world):
    """A page of refusals would be of no help."""
    page = await overview(world, "member")

    assert "Your role is member." in words(page)
    assert "neither the audit log nor the trust bindings" in words(page)
    assert "owner@acme.example" in words(page)
    assert "owner@other.example" not in page.html
    assert page.one("nav", **{"aria-label": "Pages of acme"}).text.split() == ["Overview"]
    for part in ("Trust bindings", "last 24 hours", "Latest changes", "legal hold"):
        assert part not in words(page)


async def test_who_reads_the_log_alone_does_not_see_the_bindings(world):
    page = await overview(world, "auditor")

    assert "Latest changes" in words(page)
    assert "access to the audit log, but not to the trust bindings" in words(page)
    assert "never used" not in words(page)


async def test_who_reads_the_bindings_alone_does_not_see_the_log(world):
    """Packages and people are in the log."""
    await grant(world, "member", "oidc:r")
    await add_install(world, BLOCK, package_name="evil-pad")
    page = await overview(world, "member")

    assert "never used" in words(page)
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
    """Those that are done are marked; with the first install the list has served its purpose."""
    page = await open_page(world, ORG, **world.session("owner"))
    steps = page.one("ol", **{"class": "first-steps"}).text
    assert "Issue an API key" in steps
    assert "Trust a CI job" in steps
    assert "Trust a CI job: done" not in steps

    await world.create()
    page = await open_page(world, ORG, **world.session("owner"))
    assert "Trust a CI job: done" in page.one("ol", **{"class": "first-steps"}).text

    await add_install(world, package_name="left-pad")
    page = await open_page(world, ORG, **world.session("owner"))
    assert not page.all("ol", **{"class": "first-steps"})


async def test_first_steps_are_for_those_who_can_take_them(world):
    """An auditor can do none of them."""
    page = await open_page(world, ORG, **world.session("auditor"))

    assert "First steps" not in page.one("main").text
