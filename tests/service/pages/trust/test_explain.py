"""Explaining a pasted token on a page, and creating the binding it lacks with one more click."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.ci.verifier.codes import Detail, FailureCode
from service.core.header_names import CI_TOKEN_HEADER
from service.core.settings import Settings
from service.orgs.projects import create_project
from service.pages.trust.explain_page import RULE_WORDS
from service.pages.trust.failures import FAILURES
from service.store.tables import Organisation
from service.trust.explain.evaluation import RULE_NAMES
from service.trust.refusals import NEITHER_TOKEN_NOR_CLAIMS, PROJECT_NOT_FOUND
from tests.conftest import BY_OPERATOR, SettableClock, World, bindings_path, grant, running_world
from tests.issuers.issuer import Issuer
from tests.service.pages.page import OWN_PAGE, SCRIPTS, Page, send_form, shown
from tests.service.pages.trust.pages import BINDINGS, EXPLAIN, HOSTILE, NEW, SUB, see


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
async def world(settings: Settings, clock: SettableClock, issuer: Issuer) -> AsyncIterator[World]:
    """A world whose network is the issuer."""
    async with running_world(
        settings, clock, has_sealer=False, transport=issuer.transport()
    ) as people:
        yield people


async def explained(world: World, pasted: str, who: str = "owner", **fields: str) -> Page:
    page = await see(world, EXPLAIN, who)
    return await shown(await send_form(world, page, EXPLAIN, who, pasted=pasted, **fields), 200)


def rules(page: Page) -> list[str]:
    """What became of each rule, with its sentences."""
    found = [one for one in page.all("li") if one.attributes.get("class") == "rule"]
    return [" ".join(one.text.split()) for one in found]


def drafted(page: Page) -> dict[str, str]:
    """What the create form would send as it stands."""
    chosen = [one.attributes["value"] for one in page.all("option", selected="")]
    texts = {one.attributes["name"]: one.text[1:] for one in page.all("textarea")}
    return page.forms[NEW] | {
        "issuer": chosen[0],
        "origin": next(one for one in chosen if one.endswith("_admin")),
        "sub_pattern": texts["sub_pattern"],
        "event_names": texts["event_names"],
        "repository_id": page.values("repository_id")[0],
    }


async def is_trusted(world: World, token: str) -> bool:
    """Whether a request with the token is one of a trusted job."""
    with capture_logs() as logs:
        await world.client.get(bindings_path(), headers=world.admin | {CI_TOKEN_HEADER: token})
    return not [line for line in logs if line["event"].startswith("auth_failure_")]


async def test_a_token_becomes_a_binding_with_one_click(world, issuer):
    token = issuer.sign()
    page = await explained(world, token)

    assert (
        page.one("div", role="status")
        .text.strip()
        .startswith("It is not trusted: No active binding has this subject and repository.")
    )
    assert "Trusts jobs of acme (repository 123456789), started by push" in page.one("main").text
    sent = await world.client.post(
        NEW, form=drafted(page), headers=world.session("owner") | OWN_PAGE
    )
    assert sent.status_code == 303
    assert await is_trusted(world, token)
    (binding,) = await world.bindings()
    again = await explained(world, token)
    assert again.one("div", role="status").text.strip().startswith("It is trusted.")
    assert again.link(binding["id"]) == f"{BINDINGS}/{binding['id']}"
    assert [text.split()[1] for text in rules(again)] == ["passed"] * 7
    assert NEW not in again.forms


@pytest.mark.parametrize("has_signature", [True, False], ids=["token", "claims"])
async def test_the_character_that_differs_is_marked_and_named(world, issuer, has_signature):
    """It cannot be seen by looking."""
    binding_id = await world.bind()
    changes = {"sub": SUB.replace("payments", "Payments")}
    pasted = issuer.sign(**changes) if has_signature else json.dumps(issuer.claims(**changes))
    page = await explained(world, pasted)

    assert [mark.text for mark in page.all("mark")][:2] == ["p", "P"]
    assert (
        "First difference at character 11: expected U+0070 LATIN SMALL LETTER P, found U+0050 LATIN"
        " CAPITAL LETTER P (only upper and lower case differ)." in " ".join(rules(page))
    )
    assert page.link(binding_id) == f"{BINDINGS}/{binding_id}"
    assert "Its subject differs in spelling alone." in page.one("main").text
    assert "The signature was not checked" in page.one("main").text


async def test_a_revoked_binding_is_among_the_nearest(world, issuer):
    """With who revoked it and why: ask them first."""
    await world.revoke(await world.bind(), "leaked")
    page = await explained(world, issuer.sign())

    assert "by system:admin-token: leaked." in page.one("main").text


async def test_a_misspelt_subject_is_replaced_or_added_beside(world, issuer):
    binding_id = await world.bind(event_names=["schedule"], project_id=None)
    token = issuer.sign(sub=SUB.replace("payments", "Payments"))
    page = await explained(world, token)

    status = " ".join(page.one("div", role="status").text.split())
    assert status.startswith(
        "It is not trusted: No active binding has this subject and repository. Character 11 differs"
        " (only upper and lower case differ) from an active binding."
    )
    assert len(page.all("mark")) == 2
    assert page.one("button", form="beside").text == "Add beside it"
    assert page.values("event_names") == ["push"]
    (beside,) = [one for one in page.all("form") if one.attributes.get("id") == "beside"]
    assert beside.attributes["action"] == NEW
    names = ("issuer", "sub_pattern", "repository_id", "event_names", "origin", "project_id")
    fields = {name: page.values(name)[-1] for name in names}
    sent = await world.client.post(
        NEW, form=page.forms[NEW] | fields, headers=world.session("owner") | OWN_PAGE
    )
    assert sent.status_code == 303
    assert await is_trusted(world, token)
    assert await is_trusted(world, issuer.sign(event_name="schedule"))
    assert binding_id in {each["id"] for each in await world.bindings(state="active")}


async def test_rules_that_passed_take_one_line_each(world, issuer):
    await world.bind(event_names=["schedule"])
    page = await explained(world, issuer.sign())

    lists = [one for one in page.all("li") if one.attributes.get("class") == "rule"]
    assert [text.split()[1] for text in rules(page)[:4]] == ["passed"] * 4
    assert all("Expected" not in one.text for one in lists[:4])
    assert "Expected" in lists[4].text


@pytest.mark.parametrize(
    ("changes", "meaning"),
    [
        ({"iss": "https://evil.example"}, "Its issuer is not accepted."),
        ({"aud": "sigstore"}, "Its audience is not this service, or not this service alone."),
        ({"sub": ...}, "It has no subject."),
        ({"exp": 1}, "It had expired, or was not valid yet."),
    ],
)
async def test_each_failure_is_told_in_words(world, issuer, changes, meaning):
    await world.bind()
    page = await explained(world, issuer.sign(**changes))

    assert meaning in page.one("div", role="status").text
    assert sum("failed" in text for text in rules(page)) == 1


@pytest.mark.parametrize("pasted", ["Bearer a.b.c", "{"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_token_is_said_to_be_none(shared_world, pasted):
    page = await explained(shared_world, pasted)

    assert "The header does not hold a token." in page.one("div", role="status").text
    assert ["not reached" in text for text in rules(page)] == [True] * 7


async def test_the_token_is_nowhere_afterwards(world, issuer, settings: Settings):
    """Neither in the page, the log, a row, the address, nor on the disk."""
    await world.bind()
    token = issuer.sign(padding="x" * 500)
    with capture_logs() as logs:
        page = await see(world, NEW)
        response = await send_form(world, page, EXPLAIN, pasted=token)
        text = await response.get_data(as_text=True)
    kept = b"".join(path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file())

    assert response.status_code == 200
    assert "location" not in response.headers
    for part in (token, *token.split(".")[1:], token[-40:]):
        assert part not in text
        assert part not in json.dumps(logs, default=str)
        assert part not in json.dumps(await world.audit())
        assert part.encode() not in kept
    assert page.one("textarea", name="pasted").text == "\n"


async def test_an_explanation_can_be_for_one_projects_key(world, issuer):
    """A binding limited to a project is trusted with its keys alone."""
    await world.bind(project_id=world.project.id)
    without = await explained(world, issuer.sign())
    within = await explained(world, issuer.sign(), project_id=world.project.id)

    assert "It is for API keys of project" in without.one("main").text
    assert "It is trusted." in within.one("div", role="status").text
    assert within.one("option", selected="", value=world.project.id).text == "payments"


async def test_a_fault_of_the_form_is_beside_its_field(world):
    async with world.services.store.write() as work:
        other = await work.session.get(Organisation, world.other.id)
        project = await create_project(work, other, "theirs", BY_OPERATOR)
    page = await see(world, EXPLAIN)
    empty = await shown(await send_form(world, page, EXPLAIN, pasted=" \r\n"), 400)
    foreign = await shown(
        await send_form(world, page, EXPLAIN, pasted="{}", project_id=project.id), 400
    )

    assert empty.one("p", id="hint-explain-pasted").text == NEITHER_TOKEN_NOR_CLAIMS.text
    assert foreign.one("p", id="hint-explain-project_id").text == PROJECT_NOT_FOUND.text


async def test_a_reader_gets_the_explanation_and_no_form_to_create(world, issuer):
    await grant(world, "auditor", "oidc:r")
    page = await explained(world, issuer.sign(), "auditor")

    assert "What would make it trusted" in page.one("main").text
    assert list(page.forms) == ["/sign-out", EXPLAIN]


@pytest.mark.parametrize(
    "claim", ["iss", "aud", "sub", "repository_id", "event_name", "repository_owner", "exp"]
)
async def test_hostile_claims_are_texts(world, issuer, claim):
    """What a stranger wrote into a token is shown to people who decide."""
    await world.bind()
    claims: dict[str, Any] = issuer.claims(**{claim: HOSTILE})
    page = await explained(world, json.dumps(claims))

    assert not page.all("img")
    assert page.scripts == SCRIPTS
    if claim not in {"repository_owner", "exp"}:
        assert HOSTILE in page.one("main").text


def test_every_failure_and_every_rule_has_words():
    """A code that a page does not know would be a page that fails."""
    codes = {code for code, _ in FAILURES}
    details = {detail for _, detail in FAILURES}

    assert codes == set(FailureCode)
    assert details == {None, *Detail}
    assert {(code, None) for code in FailureCode} <= FAILURES.keys()
    assert list(RULE_WORDS) == list(RULE_NAMES)
