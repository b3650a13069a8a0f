"""The proposed binding, sent as it is after its revokes, makes the token pass."""

import pytest

from service.explain.proposals import draft_of
from service.issuers.issuers import Issuer as KnownIssuer
from service.verifier.candidates import BindingTerms
from tests.conftest import ISSUER, START, World
from tests.issuers.issuer import Issuer
from tests.issuers.known import GITHUB
from tests.service.explain.explaining import (
    Keys,
    created,
    explained,
    explained_claims,
    explained_token,
    follow,
    revoke,
)

MAIN = "repo:acme/payments:ref:refs/heads/main"
NOW = int(START.timestamp())
CIRCLECI = KnownIssuer(
    name="circleci",
    url="https://oidc.circleci.com/org/0",
    provider="circleci",
    accepted=True,
    algorithms=("RS256",),
    requires_repository_id=False,
    repository_id_claim="oidc.circleci.com/project-id",
)


async def proposal_makes_it_pass(world: World, **changes) -> dict:
    """Follow what is proposed for the good token with `changes`; the proposal."""
    issuer = Issuer()
    before = await explained_claims(world, issuer, **changes)
    assert not before["passes"]
    assert before["proposal"] is not None

    await follow(world, before["proposal"])

    assert (await explained_claims(world, issuer, **changes))["passes"]
    token = await explained_token(world, issuer.sign(**changes), Keys(issuer))
    assert (token.passes, token.signature_checked) == (True, True)
    return before["proposal"]


@pytest.mark.parametrize(
    ("bound", "changes", "events", "revokes"),
    [
        (None, {}, ["push"], False),
        ({"sub_pattern": "repo:acme/other"}, {}, ["push"], False),
        ({"repository_id": "5"}, {}, ["push"], False),
        ({"event_names": ["release", "push_"]}, {}, ["release", "push_", "push"], True),
        ({}, {"event_name": ...}, [], True),
        ({}, {"sub": f"{MAIN}é"}, ["push"], False),
        ({}, {"sub": "repo:acme@1/payments@2:ref:refs/heads/main"}, ["push"], False),
        ({}, {"sub": MAIN.upper(), "repository_id": 42}, ["push"], False),
    ],
)
async def test_a_proposal_sent_as_it_is_makes_the_token_pass(
    world, bound, changes, events, revokes
):
    """What holds the slot is named for revoking, and what it trusted is trusted on."""
    binding_id = None if bound is None else await created(world, **bound)

    proposal = await proposal_makes_it_pass(world, **changes)

    assert proposal["body"]["event_names"] == events
    assert proposal["revokeFirst"] == ([binding_id] if revokes else [])
    assert all(name in proposal["review"] for name in proposal["revokeFirst"])


async def test_a_revoked_binding_is_proposed_anew(world):
    """It does not hold the slot."""
    await revoke(world, await created(world))

    assert (await proposal_makes_it_pass(world))["revokeFirst"] == []


async def test_a_binding_of_another_project_gives_way(world):
    """The slot is one for all projects; that the limit goes is said."""
    limited = await created(world, project_id=world.project.id, event_names=[])

    proposal = await proposal_makes_it_pass(world)

    assert proposal["revokeFirst"] == [limited]
    assert proposal["body"]["event_names"] == []
    assert "limited to a project" in proposal["review"]


async def test_a_lost_envelope_is_proposed_for_the_teams_binding(world):
    """With it back, the team's binding matches again."""
    envelope = await created(world, event_names=[])
    team = await created(world, origin="team_admin", team_id=world.team.id)
    await revoke(world, envelope)

    proposal = await proposal_makes_it_pass(world)

    assert proposal["revokeFirst"] == []
    assert (await explained_claims(world, Issuer()))["binding"] == team


async def test_an_envelope_that_lists_too_little_is_widened(world):
    """The team's own binding stays as it is."""
    envelope = await created(world, event_names=["release"])
    await created(world, origin="team_admin", team_id=world.team.id, event_names=["push"])

    proposal = await proposal_makes_it_pass(world)

    assert proposal["revokeFirst"] == [envelope]
    assert proposal["body"]["event_names"] == ["release", "push"]


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example"},
        {"aud": "another-service"},
        {"sub": ...},
        {"sub": "two words"},
        {"sub": "x" * 1025},
        {"sub": "zero\u200bwidth"},
        {"repository_id": ...},
        {"repository_id": "0123"},
        {"repository_id": "0"},
        {"repository_id": "-5"},
        {"repository_id": "1" * 33},
        {"event_name": "two words", "sub": "repo:acme/other"},
        {"event_name": "x" * 65},
        {"exp": NOW},
    ],
)
async def test_nothing_is_proposed_where_no_binding_would_help(world, changes):
    """A request that would be refused, or change nothing, is no help."""
    await created(world)

    said = await explained_claims(world, Issuer(), **changes)

    assert not said["passes"]
    assert said["proposal"] is None


async def test_nothing_is_proposed_for_a_bad_signature_or_no_token(world):
    """Trust is there already, or there is nothing to trust."""
    await created(world)
    issuer = Issuer()

    unsigned = await explained_token(world, issuer.sign(header={"kid": "other"}), Keys(issuer))

    assert (unsigned.code, unsigned.proposal) == ("signature_invalid", None)
    assert (await explained(world, token="a.b"))["proposal"] is None


def known(binding_id: str, **changes) -> BindingTerms:
    """A binding of the good token's triple with `changes`."""
    terms = BindingTerms(binding_id, None, None, ISSUER, MAIN, "123456789", ["push"], "org_admin")
    return terms._replace(**changes)


def test_owner_and_repository_are_named_for_review():
    """Names in a sub can be anybody's: the id is what is trusted."""
    proposal = draft_of(GITHUB, MAIN, "123456789", "push", "acme")

    assert "jobs of acme (repository 123456789), started by push" in proposal.review
    assert "check that both are yours" in proposal.review


def test_a_draft_without_event_trusts_any_and_says_so():
    """No list can name a claim that is not there."""
    proposal = draft_of(GITHUB, MAIN, "1", None, None)

    assert proposal.body["event_names"] == []
    assert "an owner the token does not name" in proposal.review
    assert "of any event" in proposal.review


def test_an_issuer_that_needs_no_repository_id_gets_a_draft_without():
    """Its ids need not be numbers."""
    proposal = draft_of(CIRCLECI, "org/0/project/1/user/2", "0f-uuid", None, None)

    assert proposal.body["repository_id"] is None
    assert "any repository" in proposal.review


def test_only_what_holds_the_slot_is_revoked_first():
    """Teams have slots of their own; another repository's binding is in nobody's way."""
    others = [
        known("team", team_id="team_1", origin="team_admin"),
        known("repository", repository_id="5"),
        known("sub", sub_pattern="repo:acme/other"),
        known("issuer", issuer="https://gitlab.com"),
    ]

    proposal = draft_of(GITHUB, MAIN, "123456789", "release", "acme", [known("holder"), *others])

    assert proposal.revoke_first == ["holder"]
    assert proposal.body["event_names"] == ["push", "release"]


def test_a_list_of_events_that_grew_too_long_is_not_proposed():
    """The request would be refused."""
    full = known("holder", event_names=[f"event-{number}" for number in range(64)])

    assert draft_of(GITHUB, MAIN, "123456789", "push", "acme", [full]) is None
    assert draft_of(GITHUB, MAIN, "123456789", "event-1", "acme", [full]) is not None
