"""The list of rejected subjects: who may see it, what it shows, and when it proposes a binding."""

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.ci.verifier.candidates import ActiveBinding, Candidates, candidates_of
from service.ci.verifier.codes import Detail, FailureCode
from service.core.settings import Settings
from service.orgs.teams import create_team
from service.trust.rejected.subjects import LISTED_FOR
from tests.conftest import (
    BY_OPERATOR,
    ISSUER,
    START,
    SettableClock,
    World,
    binding_body,
    bindings_path,
    grant,
    refused,
    running_world,
    settings_over,
)
from tests.service.trust.rejected.notes import rejection, remember

SUB = "repo:acme/payments:ref:refs/heads/main"
DRAFT = {
    "issuer": ISSUER,
    "sub_pattern": SUB,
    "repository_id": "123456789",
    "event_names": ["push"],
    "origin": "org_admin",
    "project_id": None,
}


ISSUERS = f"""
[github]
url = "{ISSUER}"
provider = "github"
accepted = true
algorithms = ["RS256"]
requires_repository_id = true
repository_id_claim = "repository_id"
event_name_claim = "event_name"
owner_claim = "repository_owner"
"""


@pytest.fixture
def settings(tmp_path) -> Settings:
    """One issuer, whose tokens say who owns the repository."""
    file = tmp_path / "issuers.toml"
    file.write_text(ISSUERS)
    return msgspec.structs.replace(settings_over(tmp_path), issuers_file=file)


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """Nothing runs in the background: what is remembered the test has written."""
    async with running_world(settings, clock, has_sealer=False) as quiet:
        yield quiet


def path(slug: str = "acme") -> str:
    return f"{bindings_path(slug)}/rejected"


async def listed(world: World, slug: str = "acme", **query: Any) -> list[dict[str, Any]]:
    response = await world.client.get(path(slug), headers=world.admin, query_string=query or None)
    assert response.status_code == 200, await response.get_data(as_text=True)
    answer = await response.get_json()
    assert answer["org"] == slug
    assert answer["count"] == len(answer["rejected"])
    return answer["rejected"]


async def only_entry(world: World, **changes: Any) -> dict[str, Any]:
    """What is listed once this one rejection is remembered."""
    await remember(world, rejection(world.acme.id, **changes))
    (entry,) = await listed(world)
    return entry


async def follow(world: World, proposal: dict[str, Any]) -> None:
    """Do what is proposed, exactly as it stands there."""
    replaced = proposal["replaces"]
    path = bindings_path() if replaced is None else f"{bindings_path('acme', replaced)}/replace"
    made = await world.client.post(path, headers=world.admin, json=proposal["body"])
    assert made.status_code == 201, await made.get_data(as_text=True)


async def test_an_entry_shows_who_was_rejected_why_how_often_and_when(world):
    later = START + timedelta(hours=1)
    await remember(
        world,
        rejection(world.acme.id, project_id=world.project.id),
        rejection(world.acme.id, project_id=world.project.id, at=later, request_id="req_2"),
    )

    (entry,) = await listed(world)

    review = entry["proposal"].pop("review")
    assert "acme" in review
    assert "123456789" in review
    assert entry == {
        "verified": True,
        "code": "unbound_oidc_subject",
        "detail": None,
        "issuer": ISSUER,
        "subject": SUB,
        "repositoryId": "123456789",
        "eventName": "push",
        "owner": "acme",
        "projectId": world.project.id,
        "count": 2,
        "firstAt": "2026-03-04T12:00:00.123Z",
        "lastAt": "2026-03-04T13:00:00.123Z",
        "lastRequestId": "req_2",
        "proposal": {
            "body": DRAFT | {"project_id": world.project.id},
            "replaces": None,
            "beside": None,
        },
    }


async def test_a_token_that_says_nothing_is_listed_as_such(world):
    """Not every rejected header is a token with claims."""
    nothing = dict.fromkeys(("issuer", "sub", "repository_id", "event_name", "owner"))

    entry = await only_entry(world, is_verified=False, code=FailureCode.MALFORMED_JWT, **nothing)

    assert (entry["code"], entry["subject"], entry["issuer"]) == ("malformed_jwt", None, None)
    assert (entry)["proposal"] is None


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        ("owner", 200),
        ("admin", (403, "missing capability: oidc:r")),
        ("auditor", (403, "missing capability: oidc:r")),
        ("member", (403, "missing capability: oidc:r")),
        ("stranger", (403, "missing capability: oidc:r")),
    ],
)
async def test_the_list_is_for_those_who_may_read_bindings(world, caller, expected):
    """It says whom an organisation does not trust, and its proposals whom it does."""
    response = await world.client.get(path(), headers=world.session(caller))

    found = 200 if response.status_code == 200 else await refused(response)
    assert found == expected


async def test_a_role_that_is_granted_the_capability_reads_the_list(world):
    await grant(world, "auditor", "oidc:r")

    assert (await world.client.get(path(), headers=world.session("auditor"))).status_code == 200


async def test_no_credentials_and_no_organisation_are_told_apart(world):
    """Credentials first, then the organisation."""
    anonymous = await world.client.get(path())
    nowhere = await world.client.get(path("nowhere"), headers=world.admin)

    assert await refused(anonymous) == (401, "missing or invalid credentials")
    assert await refused(nowhere) == (404, "Org not found")


async def test_an_organisation_lists_only_its_own(world):
    await remember(world, rejection(world.other.id))

    assert await listed(world) == []
    assert len(await listed(world, "other")) == 1


async def test_the_last_rejected_comes_first(world):
    """Verified or not: the question is what goes wrong now."""
    for number, is_verified in enumerate([True, False, True]):
        at = START + timedelta(seconds=number)
        await remember(
            world,
            rejection(world.acme.id, sub=f"repo:acme/{number}", is_verified=is_verified, at=at),
        )

    assert [entry["subject"][-1] for entry in await listed(world)] == ["2", "1", "0"]
    assert [entry["subject"][-1] for entry in await listed(world, limit=2)] == ["2", "1"]


async def test_each_subject_is_on_one_page(world):
    for number in range(5):
        await remember(world, rejection(world.acme.id, sub=f"repo:acme/{number}", at=START))

    seen, cursor = [], None
    for size in (2, 2, 1):
        query = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        response = await world.client.get(path(), headers=world.admin, query_string=query)
        answer = await response.get_json()
        assert (answer["count"], len(answer["rejected"])) == (size, size)
        seen += [entry["subject"] for entry in answer["rejected"]]
        cursor = answer["next_cursor"]

    assert cursor is None
    assert sorted(seen) == [f"repo:acme/{number}" for number in range(5)]
    first = await world.client.get(path(), headers=world.admin, query_string={"limit": 2})
    cursor = (await first.get_json())["next_cursor"]
    for query in (
        {"cursor": "x"},
        {"cursor": cursor, "verified": "false"},
        {"cursor": cursor, "since": "2026-01-01"},
    ):
        answer = await world.client.get(path(), headers=world.admin, query_string=query)
        assert await refused(answer) == (400, "cursor is not valid for this query")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["alleged", "held"]),
        ({"verified": "true"}, ["held"]),
        ({"verified": "false"}, ["alleged"]),
        ({"code": "bad_audience"}, ["alleged"]),
        ({"code": "unbound_oidc_subject"}, ["held"]),
        ({"code": "malformed_jwt"}, []),
        ({"since": "2026-03-04T12:00:01.123456Z"}, ["alleged"]),
        ({"since": "2026-03-04T12:00:01.123457Z"}, []),
        ({"since": "2020-01-01T00:00:00Z"}, ["alleged", "held"]),
        ({"verified": "true", "code": "bad_audience"}, []),
    ],
    ids=str,
)
async def test_parameters_narrow_the_list(world, query, expected):
    await remember(
        world,
        rejection(world.acme.id, sub="held"),
        rejection(
            world.acme.id,
            sub="alleged",
            is_verified=False,
            code=FailureCode.BAD_AUDIENCE,
            at=START + timedelta(seconds=1),
        ),
    )

    assert [entry["subject"] for entry in await listed(world, **query)] == expected


async def test_what_is_past_its_time_is_not_shown(world):
    """Whether or not the background work has come to delete it."""
    await remember(world, rejection(world.acme.id))

    world.clock.advance(seconds=LISTED_FOR.total_seconds())
    assert len(await listed(world)) == 1
    world.clock.advance(microseconds=1)
    assert await listed(world, since="2020-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("verified=yes", "verified must be true or false"),
        ("verified=", "verified must be true or false"),
        ("verified=true&verified=false", "verified may be given only once"),
        ("since=yesterday", "since must be a date or an RFC 3339 instant (2026-01-31T08:00:00Z)"),
        ("limit=0", "limit must be an integer from 1 to 1000"),
        ("limit=1001", "limit must be an integer from 1 to 1000"),
        ("limit=-1", "limit must be an integer from 1 to 1000"),
        ("limit=", "limit must be an integer from 1 to 1000"),
        ("limit=%D9%A1", "limit must be an integer from 1 to 1000"),
        ("offset=1", "unknown query parameter: offset"),
        ("Verified=true", "unknown query parameter: Verified"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_not_understood_is_refused(shared_world, query, error):
    response = await shared_world.client.get(f"{path()}?{query}", headers=shared_world.admin)

    assert await refused(response) == (400, error)


async def test_an_unknown_code_is_refused_with_those_there_are(world):
    """A misspelt one would look as if nothing were wrong."""
    response = await world.client.get(f"{path()}?code=bad_audiense", headers=world.admin)

    status, error = await refused(response)
    assert status == 400
    assert error.startswith("code must be one of missing_token, malformed_jwt, ")


async def test_a_draft_sent_as_it_is_makes_the_subject_trusted(world):
    entry = await only_entry(world)

    await follow(world, entry["proposal"])

    assert (await listed(world))[0]["proposal"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"is_verified": False},
        {"code": FailureCode.BAD_AUDIENCE},
        {"code": FailureCode.SIGNATURE_INVALID},
        {"code": FailureCode.MISSING_REPOSITORY_ID, "repository_id": None},
        {"repository_id": None},
        {"sub": None, "detail": Detail.MISSING_SUB},
        {"sub": "repo:acme/white space"},
        {"sub": "repo:acme/nul\x00"},
        {"sub": "s" * 1025},
        {"repository_id": "one"},
        {"event_name": "e" * 65},
        {"issuer": "https://gone.example"},
    ],
    ids=str,
)
async def test_nothing_is_proposed_where_none_can_be_trusted_or_would_be_taken(world, changes):
    """A stranger would word what a member then trusts."""
    assert (await only_entry(world, **changes))["proposal"] is None


async def test_for_the_project_it_is_limited_to_the_binding_is_enough(world):
    await world.bind(project_id=world.project.id)

    assert (await only_entry(world, project_id=world.project.id))["proposal"] is None


async def test_what_was_trusted_in_the_meantime_needs_no_proposal_until_it_is_revoked(world):
    """A proposal is of the present bindings, not of those at the time."""
    assert (await only_entry(world))["proposal"]["body"] == DRAFT

    binding_id = await world.bind()
    assert (await listed(world))[0]["proposal"] is None

    await world.revoke(binding_id)
    (entry,) = await listed(world)
    assert entry["proposal"]["body"] == DRAFT
    assert entry["proposal"]["replaces"] is None


async def test_ambiguity_is_for_a_person_to_resolve(world):
    """One binding more would make it worse."""
    await world.bind()
    for team_id in (world.team.id, await another_team(world)):
        await world.bind(origin="team_admin", team_id=team_id)

    assert (await only_entry(world, detail=Detail.BINDING_AMBIGUOUS))["proposal"] is None


async def another_team(world: World) -> str:
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        return (await create_team(work, acme, "second", BY_OPERATOR)).id


async def test_a_draft_is_compared_with_the_bindings_of_its_own_job(
    world, monkeypatch: pytest.MonkeyPatch
):
    """A subject may be bound for thousands of repositories, and a list be a thousand long."""
    looked_at = 0

    def counted(active: Iterable[ActiveBinding]) -> Candidates:
        nonlocal looked_at
        bindings = list(active)
        looked_at += len(bindings)
        return candidates_of(bindings)

    monkeypatch.setattr("service.trust.rejected.rejected_api.candidates_of", counted)
    monkeypatch.setattr("service.trust.explain.proposals.candidates_of", counted)
    for number in range(20):
        await world.bind(repository_id=str(number + 1))
    many = [rejection(world.acme.id, repository_id=str(number + 100)) for number in range(20)]
    await remember(world, *many)

    assert all(entry["proposal"] is not None for entry in await listed(world))
    assert looked_at == len(many)  # each with what it supposes, and with nothing else


async def test_a_slot_that_another_organisation_holds_cannot_be_proposed(world):
    """The create would be refused, and the binding to revoke is not theirs to know of."""
    made = await world.client.post(bindings_path("other"), headers=world.admin, json=binding_body())
    assert made.status_code == 201

    assert (await only_entry(world))["proposal"] is None


async def test_hostile_text_arrives_as_text(world):
    text = "\x00\r\n\x1b[31m<b>\U0001f512"

    entry = await only_entry(world, is_verified=False, sub=text, owner=text)

    assert (entry["subject"], entry["owner"]) == (text, text)
