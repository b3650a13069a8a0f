"""The proposed binding, sent as it is, makes the token pass and keeps what was trusted."""

from dataclasses import replace

import pytest

from service.ci.issuers.issuers import Issuer as KnownIssuer
from service.ci.verifier.candidates import BindingTerms
from service.trust.explain.evaluation import TokenJob
from service.trust.explain.proposals import draft_of
from tests.conftest import ISSUER, START, World
from tests.issuers.issuer import Issuer
from tests.issuers.known import GITHUB
from tests.service.trust.explain.explaining import (
    Keys,
    explained,
    explained_claims,
    explained_token,
    follow,
)

MAIN = "repo:acme/payments:ref:refs/heads/main"
NOW = int(START.timestamp())
JOB = TokenJob(GITHUB, MAIN, "123456789", "push", "acme", None)
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
    ("bound", "changes", "events", "replaces"),
    [
        (None, {}, ["push"], False),
        ({"sub_pattern": "repo:acme/other"}, {}, ["push"], False),
        ({"repository_id": "5"}, {}, ["push"], True),
        ({"event_names": ["release", "push_"]}, {}, ["release", "push_", "push"], True),
        ({}, {"event_name": ...}, [], True),
        ({}, {"sub": f"{MAIN}é"}, ["push"], False),
        ({}, {"sub": "repo:acme@1/payments@2:ref:refs/heads/main"}, ["push"], True),
        ({}, {"sub": MAIN.upper(), "repository_id": 42}, ["push"], False),
        ({"event_names": ["release"]}, {"sub": MAIN.upper()}, ["release", "push"], True),
        ({"event_names": []}, {"sub": MAIN.upper()}, [], True),
    ],
)
async def test_a_proposal_sent_as_it_is_makes_the_token_pass(
    world, bound, changes, events, replaces
):
    binding_id = None if bound is None else await world.bind(**bound)

    proposal = await proposal_makes_it_pass(world, **changes)

    assert proposal["body"]["event_names"] == events
    assert proposal["replaces"] == (binding_id if replaces else None)
    if replaces:
        assert f"It replaces {binding_id} in one step" in proposal["review"]


async def test_a_revoked_binding_is_proposed_again(world):
    """It does not hold the slot."""
    await world.revoke(await world.bind())

    assert (await proposal_makes_it_pass(world))["replaces"] is None


async def test_a_binding_of_another_project_gives_way(world):
    """The slot is one for all projects; that the limit goes is said."""
    limited = await world.bind(project_id=world.project.id, event_names=[])

    proposal = await proposal_makes_it_pass(world)

    assert (proposal["replaces"], proposal["beside"]) == (limited, None)
    assert proposal["body"]["event_names"] == []
    assert "limited to a project" in proposal["review"]


async def test_a_lost_envelope_is_proposed_for_the_teams_binding(world):
    envelope = await world.bind(event_names=[])
    team = await world.bind(origin="team_admin", team_id=world.team.id)
    await world.revoke(envelope)

    proposal = await proposal_makes_it_pass(world)

    assert proposal["replaces"] is None
    assert (await explained_claims(world, Issuer()))["binding"] == team


async def test_an_envelope_that_lists_too_little_is_widened(world):
    """The team's own binding stays as it is."""
    envelope = await world.bind(event_names=["release"])
    await world.bind(origin="team_admin", team_id=world.team.id, event_names=["push"])

    proposal = await proposal_makes_it_pass(world)

    assert proposal["replaces"] == envelope
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
    await world.bind()

    said = await explained_claims(world, Issuer(), **changes)

    assert not said["passes"]
    assert said["proposal"] is None


async def test_nothing_is_proposed_for_a_bad_signature_or_no_token(world):
    await world.bind()
    issuer = Issuer()

    unsigned = await explained_token(world, issuer.sign(header={"kid": "other"}), Keys(issuer))

    assert (unsigned.code, unsigned.proposal) == ("signature_invalid", None)
    assert (await explained(world, token="a.b"))["proposal"] is None


def known(binding_id: str, **changes) -> BindingTerms:
    """A binding of the good token's triple with `changes`."""
    terms = BindingTerms(
        binding_id, None, None, ISSUER, MAIN, "123456789", ["push"], "org_admin", None
    )
    return replace(terms, **changes)


def test_owner_and_repository_are_named_for_review():
    """Any repository can have the names in a sub: the id is what is trusted."""
    proposal = draft_of(JOB)

    assert "jobs of acme (repository 123456789), started by push" in proposal.review
    assert "check that both are yours" in proposal.review


def test_a_draft_without_event_trusts_any_and_says_so():
    """No list can name a claim that is not there."""
    proposal = draft_of(TokenJob(GITHUB, MAIN, "1", None, None, None))

    assert proposal.body["event_names"] == []
    assert "an owner the token does not name" in proposal.review
    assert "of any event" in proposal.review


def test_an_issuer_that_needs_no_repository_id_gets_a_draft_without():
    """Its ids need not be numbers."""
    proposal = draft_of(TokenJob(CIRCLECI, "org/0/project/1/user/2", "0f-uuid", None, None, None))

    assert proposal.body["repository_id"] is None
    assert "any repository" in proposal.review


def test_only_what_holds_the_slot_is_replaced():
    """Teams have slots of their own; another repository's binding does not conflict."""
    others = [
        known("team", team_id="team_1", origin="team_admin"),
        known("repository", repository_id="5"),
        known("sub", sub_pattern="repo:acme/other"),
        known("issuer", issuer="https://gitlab.com"),
    ]

    proposal = draft_of(replace(JOB, event_name="release"), [known("holder"), *others])

    assert (proposal.replaces, proposal.beside) == ("holder", None)
    assert proposal.body["event_names"] == ["push", "release"]


def test_a_list_of_events_that_grew_too_long_is_not_proposed():
    """The request would be refused."""
    full = known("holder", event_names=[f"event-{number}" for number in range(64)])

    assert draft_of(JOB, [full]) is None
    assert draft_of(replace(JOB, event_name="event-1"), [full]) is not None


# The job under an earlier name


async def test_a_renamed_job_can_be_trusted_beside_its_earlier_name(world):
    """Other jobs may still have that name; each body is accepted as it stands."""
    earlier = await world.bind(event_names=["release"], project_id=None)
    issuer = Issuer()
    proposal = (await explained_claims(world, issuer, sub=MAIN.upper()))["proposal"]

    assert proposal["replaces"] == earlier
    assert proposal["body"]["event_names"] == ["release", "push"]
    assert proposal["beside"]["event_names"] == ["push"]
    await follow(world, {"replaces": None, "body": proposal["beside"]})
    assert (await explained_claims(world, issuer, sub=MAIN.upper()))["passes"]
    assert (await explained_claims(world, issuer, event_name="release"))["passes"]


async def test_a_proposal_has_the_conditions_of_the_earlier_binding(world):
    """Without them, the binding beside it would trust more than the review says."""
    condition = {"ref": "refs/heads/main"}
    await world.bind(conditions=condition)
    job = {"sub": MAIN.upper(), **condition}
    proposal = (await explained_claims(world, Issuer(), **job))["proposal"]

    assert proposal["body"]["conditions"] == proposal["beside"]["conditions"] == condition
    await follow(world, {"replaces": None, "body": proposal["beside"]})
    assert (await explained_claims(world, Issuer(), **job))["passes"]
    assert not (await explained_claims(world, Issuer(), **job | {"ref": "x"}))["passes"]


async def test_a_renamed_repository_keeps_events_and_conditions(world):
    condition = {"ref": "refs/heads/main"}
    earlier = await world.bind(event_names=["release"], conditions=condition)
    job = {"sub": "repo:acme@77/ledger@123456789:ref:refs/heads/main", **condition}
    proposal = (await explained_claims(world, Issuer(), **job))["proposal"]

    assert proposal["replaces"] == earlier
    assert proposal["body"]["conditions"] == condition
    await follow(world, proposal)
    assert (await explained_claims(world, Issuer(), **job, event_name="release"))["passes"]
    assert not (await explained_claims(world, Issuer(), **job | {"ref": "x"}))["passes"]


async def test_a_job_whose_binding_has_conditions_gets_none_without_them(world):
    """A remembered token has no claims to compare them with: they are kept all the same."""
    condition = {"environment": "production"}
    earlier = await world.bind(conditions=condition)
    job = {"sub": MAIN.upper()}

    remembered = (await explained_claims(world, Issuer(), **job))["proposal"]
    unmet = (await explained_claims(world, Issuer(), **job, environment="staging"))["proposal"]

    assert remembered["replaces"] == earlier
    assert remembered["body"]["conditions"] == remembered["beside"]["conditions"] == condition
    assert unmet is None


async def test_a_teams_or_revoked_binding_is_no_earlier_name(world):
    """A team's belongs to its team; a revoked one trusts nothing."""
    await world.bind()
    await world.bind(origin="team_admin", team_id=world.team.id)
    proposal = (await explained_claims(world, Issuer(), sub=MAIN.upper()))["proposal"]
    assert proposal["replaces"] is not None

    await world.revoke(proposal["replaces"])

    proposal = (await explained_claims(world, Issuer(), sub=MAIN.upper()))["proposal"]
    assert (proposal["replaces"], proposal["beside"]) == (None, None)


# The project of the API key


async def test_a_new_binding_is_limited_to_the_project_of_the_key(world):
    """The job needs no more: keys of other projects are not trusted with it."""
    claims = Issuer().claims()
    said = await explained(world, claims=claims, project_id=world.project.id)

    assert said["proposal"]["body"]["project_id"] == world.project.id
    await follow(world, said["proposal"])
    again = await explained(world, claims=claims, project_id=world.project.id)
    assert again["passes"]
    assert not (await explained(world, claims=claims))["passes"]


@pytest.mark.parametrize("is_limited", [True, False])
async def test_a_replacement_keeps_the_project_of_the_binding(world, is_limited):
    """Neither narrower, which would break other jobs, nor wider than it was."""
    project_id = world.project.id if is_limited else None
    await world.bind(event_names=["release"], project_id=project_id)

    said = await explained(world, claims=Issuer().claims(), project_id=world.project.id)

    assert said["proposal"]["body"]["project_id"] == project_id
    await follow(world, said["proposal"])
    again = await explained(world, claims=Issuer().claims(), project_id=world.project.id)
    assert again["passes"]
