"""Which subjects were rejected, as people see it, and the draft that one click makes of it."""

from datetime import timedelta

import pytest

from service.ci.verifier.codes import Detail, FailureCode
from service.trust.rejected.rejected_api import LIMIT_DEFAULT
from service.trust.rejected.subjects import LISTED_FOR, SUB_CHARS_MAX
from tests.conftest import START, World, grant
from tests.service.pages.page import AUDIT, ORG, OWN_PAGE, SCRIPTS, Page, open_page, shown
from tests.service.pages.trust.pages import (
    BINDINGS,
    NEW,
    REJECTED,
    SUB,
    add_team,
    cells,
    see,
    subjects_of,
)
from tests.service.trust.rejected.notes import rejection, remember, remembered

HOSTILE = "<img src=x onerror=alert(1)>"
DRAFTS = ("Trust this job", "Replace its binding")


async def see_rejection(world: World, who: str = "owner", **changes) -> Page:
    """The page once this one rejection is remembered."""
    await remember(world, rejection(world.acme.id, **changes))
    return await see(world, REJECTED, who)


def drafts(page: Page) -> list[str]:
    """Where the page offers to draft a binding."""
    links = [link for link in page.all("a") if link.text.startswith(DRAFTS)]
    return [link.attributes["href"] for link in links]


async def test_a_row_says_who_why_how_often_and_what_to_do(world):
    later = START + timedelta(hours=1)
    await remember(
        world,
        rejection(world.acme.id, project_id=world.project.id),
        rejection(world.acme.id, project_id=world.project.id, at=later, request_id="req_2"),
    )
    page = await see(world, REJECTED)

    assert subjects_of(page) == [SUB]
    assert cells(page, "Why") == [
        "No active binding has this subject and repository. unbound_oidc_subject"
    ]
    assert cells(page, "Times") == ["2"]
    assert cells(page, "Last") == ["2026-03-04 13:00"]
    details = [" ".join(one.text.split()) for one in page.all("dd")]
    assert details == [
        SUB,
        "https://token.actions.githubusercontent.com",
        "123456789",
        "push",
        "acme",
        "payments",
        "2026-03-04 12:00 UTC",
        "2026-03-04 13:00 UTC",
    ]
    assert f"{AUDIT}?request_id=req_2" in {link.attributes["href"] for link in page.all("a")}


async def test_one_click_drafts_and_one_more_creates(world):
    """The draft is read from what is stored; the address has nothing but its digest."""
    page = await see_rejection(world)
    (row,) = await remembered(world)
    assert drafts(page) == [f"{NEW}?from={row.digest}"]

    draft = await see(world, drafts(page)[0])
    assert "Trusts jobs of acme (repository 123456789), started by push" in draft.one("main").text
    texts = {one.attributes["name"]: one.text[1:] for one in draft.all("textarea")}
    fields = {
        "issuer": draft.all("option", selected="")[0].attributes["value"],
        "sub_pattern": texts["sub_pattern"],
        "repository_id": draft.values("repository_id")[0],
        "event_names": texts["event_names"],
        "origin": "org_admin",
    }
    sent = await world.client.post(
        NEW, form=draft.forms[NEW] | fields, headers=world.session("owner") | OWN_PAGE
    )
    assert sent.status_code == 303
    (binding,) = await world.bindings()
    assert (binding["subPattern"], binding["eventNames"]) == (SUB, ["push"])

    after = await see(world, REJECTED)
    assert drafts(after) == []
    assert after.link(binding["id"]) == f"{BINDINGS}/{binding['id']}"
    stale = await see(world, f"{NEW}?from={row.digest}")
    assert "Now trusted" in stale.one("div", role="alert").text
    assert NEW not in stale.forms


async def test_what_is_unverified_is_apart_and_drafts_nothing(world):
    """A stranger must not word what a member may then trust."""
    page = await see_rejection(
        world, is_verified=False, code=FailureCode.SIGNATURE_INVALID, sub="repo:made/up:x"
    )
    (row,) = await remembered(world)
    heading = page.html.index("Unverified: possibly forged")

    assert page.html.index("repo:made/up:x") > heading
    assert drafts(page) == []
    stale = await see(world, f"{NEW}?from={row.digest}")
    assert "No binding can be drafted" in stale.one("div", role="alert").text
    assert NEW not in stale.forms


async def test_made_up_subjects_do_not_crowd_out_the_others(world):
    await remember(
        world,
        rejection(world.acme.id, sub="repo:acme/genuine:x"),
        *[
            rejection(
                world.acme.id,
                is_verified=False,
                code=FailureCode.UNBOUND_ISSUER,
                sub=f"repo:made/up:{number}",
                at=START + timedelta(minutes=1),
            )
            for number in range(LIMIT_DEFAULT + 5)
        ],
    )
    page = await see(world, REJECTED)

    assert subjects_of(page)[0] == "repo:acme/genuine:x"
    assert len(cells(page, "Subject")) == 1 + LIMIT_DEFAULT
    assert f"These are the last {LIMIT_DEFAULT}" in page.one("main").text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sub": None, "detail": Detail.MISSING_SUB}, "check where the token comes from"),
        ({"repository_id": None, "code": FailureCode.MISSING_REPOSITORY_ID}, "check where"),
        ({"sub": "x" * (SUB_CHARS_MAX + 1)}, "No binding can be created"),
        ({"repository_id": "0"}, "No binding can be created"),
    ],
)
async def test_where_no_binding_would_help_the_page_says_what_would(world, changes, said):
    """A draft that the create refuses would be of no help."""
    page = await see_rejection(world, **changes)

    assert drafts(page) == []
    assert said in cells(page, "What to do")[0]


async def test_of_bindings_that_match_alike_all_but_one_have_to_go(world):
    """One more would not help."""
    await world.bind()
    for team in (world.team, await add_team(world, "second")):
        await world.bind(origin="team_admin", team_id=team.id)
    page = await see_rejection(world, detail=Detail.BINDING_AMBIGUOUS)

    assert drafts(page) == []
    assert cells(page, "What to do")[0].startswith("Compare the bindings")
    assert "Revoke all but one of them" in page.one("main").text


async def test_a_job_that_another_organisation_has_cannot_be_drafted(world):
    """The create would be refused, and their binding is not this one's to revoke."""
    body = {"issuer": rejection("").issuer, "sub_pattern": SUB, "repository_id": "123456789"}
    response = await world.client.post(
        "/api/v1/admin/orgs/other/oidc-bindings",
        headers=world.admin,
        json=body | {"origin": "org_admin"},
    )
    theirs = (await response.get_json())["id"]
    page = await see_rejection(world)

    assert "Another organisation has a binding for this job" in cells(page, "What to do")[0]
    assert theirs not in page.html


async def test_a_draft_is_for_those_who_may_read_and_create(world):
    await grant(world, "auditor", "oidc:r")
    await grant(world, "admin", "oidc:w")
    page = await see_rejection(world, "auditor")
    (row,) = await remembered(world)

    assert drafts(page) == []
    assert "A binding is missing" in cells(page, "What to do")[0]
    for who in ("auditor", "admin"):
        headers = world.session(who) | OWN_PAGE
        drafted = await world.client.get(f"{NEW}?from={row.digest}", headers=headers)
        assert drafted.status_code == 403


async def test_another_organisations_digest_is_404(world):
    """Digests are no secret: two organisations have the same for the same job."""
    await remember(world, rejection(world.other.id, sub="repo:theirs/x:y"))
    (row,) = await remembered(world, world.other.id)
    for digest in (row.digest, "missing"):
        response = await world.client.get(
            f"{NEW}?from={digest}", headers=world.session("owner") | OWN_PAGE
        )
        page = await shown(response, 404)
        assert "Rejected subject not found for this org" in page.one("div", role="alert").text
        assert "theirs" not in page.html
    assert "theirs" not in (await see(world, REJECTED)).html


async def test_what_is_forgotten_drafts_nothing(world):
    await remember(world, rejection(world.acme.id))
    (row,) = await remembered(world)
    world.clock.advance(seconds=LISTED_FOR.total_seconds() + 1)
    response = await world.client.get(f"{NEW}?from={row.digest}", headers=world.admin)

    assert response.status_code == 404


async def test_an_address_fills_in_nothing_by_itself(world):
    """A link must not fill in the form of a member who may create."""
    response = await world.client.get(
        f"{NEW}?sub_pattern=repo:evil/x:y", headers=world.session("owner") | OWN_PAGE
    )

    assert response.status_code == 400


async def test_an_organisation_without_any_learns_what_the_page_lists(world):
    """An empty page must not look like a broken one."""
    page = await see(world, REJECTED)

    assert "No token was rejected." in page.one("main").text
    assert "x-service-ci-oidc" in page.one("main").text


@pytest.mark.parametrize("is_verified", [True, False])
@pytest.mark.parametrize("name", ["issuer", "sub", "repository_id", "event_name", "owner"])
async def test_hostile_claims_are_texts(world, name, is_verified):
    page = await see_rejection(world, **{name: HOSTILE, "is_verified": is_verified})
    pages = [page, *[await see(world, path) for path in drafts(page)]]

    assert HOSTILE in page.one("main").text
    for one in pages:
        assert not one.all("img")
        assert one.scripts == SCRIPTS


async def test_the_navigation_leads_there_for_those_who_may(world):
    binding_id = await world.bind()
    auditor = await open_page(world)
    await remember(world, rejection(world.acme.id))
    overview = await see(world, ORG)
    rejected = "Rejected CI jobs1 in 30 days, 1 of them new: +1 from 0 in the 30 before"
    assert overview.link(rejected) == REJECTED
    assert (await see(world, REJECTED)).link("Bindings") == BINDINGS
    assert (await see(world, BINDINGS)).link("Rejected") == REJECTED
    for below in (NEW, f"{BINDINGS}/{binding_id}"):
        page = await see(world, below)
        (parent,) = [link for link in page.all("a") if link.text == "Bindings"]
        assert (parent.attributes["href"], parent.attributes["aria-current"]) == (BINDINGS, "true")
        assert page.link("Rejected") == REJECTED
    assert not [link for link in auditor.all("a") if link.text in {"Bindings", "Rejected"}]
