"""The bindings a rejected token may have been meant for, the most telling first."""

import dataclasses
import unicodedata
from itertools import pairwise

import pytest

from service.ci.providers import named_form
from service.orgs.teams import create_team
from service.trust.explain.evaluation import KnownBinding, TokenJob
from service.trust.explain.nearest import (
    FOLDED_CHARS_MAX,
    FOLDS_MAX,
    NEAREST_MAX,
    NearKind,
    nearest_bindings,
)
from tests.conftest import BY_OPERATOR, ISSUER, START, World
from tests.issuers.issuer import Issuer
from tests.issuers.known import GITHUB
from tests.service.trust.explain.explaining import explained_claims, failing

MAIN = "repo:acme/payments:ref:refs/heads/main"
QUALIFIED = "repo:acme@77/payments@123456789:ref:refs/heads/main"
SOUGHT = TokenJob(GITHUB, MAIN, "123456789", "push", None, None)


def known(binding_id: str, **changes) -> KnownBinding:
    """A binding that matches SOUGHT, with `changes`."""
    binding = KnownBinding(
        binding_id, None, None, ISSUER, MAIN, "123456789", ["push"], "org_admin", None, START
    )
    for name, value in changes.items():
        setattr(binding, name, value)
    return binding


REVOKED = {"revoked_at": START, "revoked_by": "github:mem_1"}
KINDS = [
    ("revoked", REVOKED, "Revoked at 2026-03-04T12:00:00.123Z by github:mem_1"),
    ("repository", {"repository_id": "5"}, "repository 5, the token comes from 123456789"),
    ("project", {"project_id": "proj_1"}, "project proj_1 alone; this is none of a project"),
    ("envelope", {"team_id": "team_1", "origin": "team_admin"}, "lies within is not active"),
    ("event", {"event_names": ["release"]}, "started by release; not by push"),
    ("qualified", {"sub_pattern": QUALIFIED}, "subject of the binding has GitHub's ids"),
    ("renamed", {"sub_pattern": MAIN.replace("payments", "pay")}, "was called acme/pay and is"),
    ("spelling", {"sub_pattern": MAIN.upper()}, "differs in spelling alone"),
    ("ref", {"sub_pattern": f"{MAIN}-2"}, "same repository id"),
    ("closest", {"sub_pattern": f"{MAIN}-3", "repository_id": "5"}, "most alike"),
]


def test_a_condition_is_named():
    (near,) = nearest_bindings(SOUGHT, [known("obind_1", conditions={"ref": "x"})])

    assert near.why == "It takes only jobs with ref x."


def test_an_envelope_of_another_project_is_named_before_conditions():
    """The condition may be met: what excludes the job is the project."""
    envelope = known("obind_1", project_id="proj_1", conditions={"ref": "x"})
    team = known("obind_2", team_id="team_1", origin="team_admin")

    whys = {near.id: near.why for near in nearest_bindings(SOUGHT, [envelope, team])}

    assert whys["obind_2"] == "Its envelope is limited to another project."


@pytest.mark.parametrize(("name", "changes", "why"), KINDS)
def test_each_kind_says_why_it_does_not_match(name, changes, why):
    (near,) = nearest_bindings(SOUGHT, [known(name, **changes)])

    assert near.id == name
    assert why in near.why
    assert near.state == ("revoked" if changes is REVOKED else "active")
    assert (near.difference is not None) == (name in WITH_DIFFERENCE)


# Ids of other repositories are unrelated numbers.
WITH_DIFFERENCE = {"qualified", "renamed", "spelling", "ref", "closest"}


# Beside a team's binding, another one of the same triple would be its envelope; and what is merely
# alike is shown beside nothing else.
ALONE = [kind for kind in KINDS if kind[0] not in {"envelope", "closest"}]
ENVELOPE = next(kind for kind in KINDS if kind[0] == "envelope")


@pytest.mark.parametrize(
    ("first", "second"), [*pairwise(ALONE), (KINDS[1], ENVELOPE), (ENVELOPE, KINDS[5])]
)
@pytest.mark.parametrize("step", [1, -1])
def test_the_most_telling_comes_first(first, second, step):
    """A revoked binding that fits says more than a subject that is like it."""
    bindings = [known(name, **changes) for name, changes, _ in (first, second)]

    found = nearest_bindings(SOUGHT, bindings[::step])

    assert [near.id for near in found] == [first[0], second[0]]


@pytest.mark.parametrize(
    ("earlier", "is_renamed"),
    [
        ("repo:acme-old/payments:ref:refs/heads/main", True),
        ("repo:acme@77/pay@123456789:ref:refs/heads/main", True),
        ("repo:acme/pay:ref:refs/tags/main", False),
        ("repo:acme/pay:ref:refs/heads/next", False),
        ("acme/pay:ref:refs/heads/main", False),
    ],
)
def test_a_repository_is_renamed_if_only_its_name_differs(earlier, is_renamed):
    """Whichever of both subjects has GitHub's ids; a tag or another branch is another job."""
    for sub in (MAIN, QUALIFIED):
        job = dataclasses.replace(SOUGHT, sub=sub)
        (near,) = nearest_bindings(job, [known("obind_1", sub_pattern=earlier)])

        assert (near.kind is NearKind.RENAMED) == is_renamed


def test_a_name_for_another_repository_id_is_not_an_earlier_one():
    """Names change hands; ids do not."""
    others = known("obind_1", sub_pattern=MAIN.replace("payments", "pay"), repository_id="5")

    (near,) = nearest_bindings(SOUGHT, [others])

    assert near.kind is NearKind.CLOSEST


@pytest.mark.parametrize(
    ("bound", "wrong", "why"),
    [
        ({}, {"repository_id": "5"}, "renamed, transferred, or deleted and created again"),
        ({}, {"repository_id": ...}, "the token names no repository id"),
        ({}, {"event_name": ...}, "does not say what started its job"),
        ({}, {"sub": QUALIFIED}, "subject of the token has GitHub's ids"),
        ({"sub_pattern": QUALIFIED}, {}, "subject of the binding has GitHub's ids"),
        ({"sub_pattern": QUALIFIED}, {"sub": QUALIFIED.replace("77", "78")}, "but other ids"),
        ({}, {"sub": MAIN.replace("main", "Main")}, "differs in spelling alone"),
        ({}, {"sub": MAIN.replace("/", "%2F")}, "differs in spelling alone"),
        ({}, {"sub": "repo:acme/payments:environment:production"}, "another branch, environment"),
        ({}, {"sub": "repo:acme/paymentz:pull_request", "repository_id": "6"}, "most alike"),
    ],
)
async def test_the_nearest_binding_is_named_over_http(world, bound, wrong, why):
    binding_id = await world.bind(**bound)

    said = await explained_claims(world, Issuer(), **wrong)

    assert [near["id"] for near in said["nearest"]] == [binding_id]
    assert why in said["nearest"][0]["why"]


async def test_a_revoked_binding_says_when_by_whom_and_why(world):
    binding_id = await world.bind()
    world.clock.advance(hours=1)
    await world.revoke(binding_id, "the repository was compromised")

    (near,) = (await explained_claims(world, Issuer()))["nearest"]

    assert (near["id"], near["state"]) == (binding_id, "revoked")
    assert near["why"].endswith(
        "Revoked at 2026-03-04T13:00:00.123Z by system:admin-token: the repository was compromised."
    )
    assert near["difference"] is None


async def test_ambiguous_bindings_are_all_listed(world: World):
    """Each of them has to be looked at; here two teams' bindings."""
    await world.bind(event_names=[])
    ids = []
    for number in range(7):
        async with world.services.store.write() as work:
            acme = await work.session.merge(world.acme)
            team = await create_team(work, acme, f"team-{number}", BY_OPERATOR)
        ids.append(await world.bind(origin="team_admin", team_id=team.id))

    said = await explained_claims(world, Issuer())

    assert (said["code"], said["detail"]) == ("unbound_oidc_subject", "binding_ambiguous")
    assert failing(said)["rule"] == 5
    assert failing(said)["found"] == sorted(ids)
    assert sorted(near["id"] for near in said["nearest"]) == sorted(ids)
    assert said["proposal"] is None


async def test_an_envelope_that_does_not_list_the_event_is_named(world):
    """The team's binding alone would not say why."""
    await world.bind(event_names=["release"])
    team = await world.bind(origin="team_admin", team_id=world.team.id, event_names=["push"])

    said = await explained_claims(world, Issuer())

    why = {near["id"]: near["why"] for near in said["nearest"]}
    assert why[team].startswith("The envelope above it trusts jobs started by release")


def test_bindings_of_another_issuer_are_not_near():
    """The same words mean another job there."""
    assert nearest_bindings(SOUGHT, [known("x", issuer="https://gitlab.com")]) == []


MANY = [
    known(f"obind_{number}", sub_pattern=f"repo:other/{number}", repository_id=str(number + 1))
    for number in range(10_000)
]


def test_one_that_is_nearly_right_is_not_hidden_by_what_is_merely_alike():
    near = known("near", sub_pattern=f"{MAIN}tenance")

    found = nearest_bindings(SOUGHT, [*MANY[:5000], near, *MANY[5000:]])

    assert [one.id for one in found] == ["near"]


def test_five_of_ten_thousand_are_named_and_the_most_alike_is_among_them():
    alike = known("alike", sub_pattern=f"{MAIN}tenance", repository_id="5")

    found = nearest_bindings(SOUGHT, [*MANY[:5000], alike, *MANY[5000:]])

    assert len(found) == NEAREST_MAX
    assert found[0].id == "alike"


def test_hostile_subjects_are_not_all_taken_apart(monkeypatch: pytest.MonkeyPatch):
    """Marks to be sorted behind one letter: a millisecond each, in which no request is answered."""
    taken_apart = []
    normalize = unicodedata.normalize

    def counted(form: str, text: str) -> str:
        taken_apart.append(text)
        return normalize(form, text)

    monkeypatch.setattr("unicodedata.normalize", counted)
    marks = "\u0315\u0300"
    short = [known(f"s{n}", sub_pattern=f"a{marks * 100}{n}") for n in range(2 * FOLDS_MAX)]
    long = [known(f"l{n}", sub_pattern=f"a{marks * 400}{n}") for n in range(FOLDS_MAX)]

    assert nearest_bindings(SOUGHT, [*long, *short])
    assert nearest_bindings(SOUGHT, [*short, *long])

    shown = 4 * NEAREST_MAX  # the differences of those that are named
    assert len(taken_apart) <= 2 * (FOLDS_MAX + shown)
    assert sum(len(text) > FOLDED_CHARS_MAX for text in taken_apart) <= 2 * shown


@pytest.mark.parametrize(
    ("sub", "plain"),
    [
        (QUALIFIED, MAIN),
        (MAIN, MAIN),
        ("repo:a@1/b@2", "repo:a/b"),
        ("repo:a@1/b:x@y", "repo:a@1/b:x@y"),
        ("repo:a@x/b@2:ref", "repo:a@x/b@2:ref"),
        ("repo:a@1/b@2/c@3:ref", "repo:a@1/b@2/c@3:ref"),
        ("x-repo:a@1/b@2", "x-repo:a@1/b@2"),
    ],
)
def test_only_ids_behind_owner_and_repository_are_left_out(sub, plain):
    """An @ elsewhere is part of a branch or environment."""
    assert named_form(sub) == plain
