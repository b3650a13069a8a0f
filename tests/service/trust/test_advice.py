"""Advice on bindings: what will fail soon, what is looser than its use, what no provider sends."""

from datetime import timedelta

import msgspec
import pytest

from service.store.tables import Binding, Origin
from service.trust.advice import NEAREST_MAX
from tests.conftest import START, SettableClock, bindings_path, running_world
from tests.service.pages.page import ORG, open_page, press, shown
from tests.service.trust.rejected.notes import rejection, remember

ADVICE = "/api/v1/admin/orgs/{}/trust/advice"
MAIN = "repo:acme/payments:ref:refs/heads/main"
WITH_IDS = "repo:acme@77/payments@123456789:ref:refs/heads/main"


async def advice_of(world, slug="acme"):
    response = await world.client.get(ADVICE.format(slug), headers=world.admin)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return (await response.get_json())["advice"]


async def kinds(world):
    return [
        (each["kind"], each["body"] and each["body"].get("sub_pattern"))
        for each in await advice_of(world)
    ]


async def admit(world, binding_id, at=START, **seen):
    """Count a token that the binding admitted, with these claims."""
    world.services.binding_use.record(binding_id, at, seen)
    await world.services.binding_use.flush()


async def test_a_repository_that_sends_ids_needs_another_binding(world):
    """Of a verified token of another branch: this one's job has not failed yet."""
    binding_id = await world.bind()
    assert await kinds(world) == [("id_form_expected", None)]
    await remember(world, rejection(world.acme.id, sub=WITH_IDS.replace("main", "other")))

    (advice,) = await advice_of(world)
    assert (advice["kind"], advice["bindingId"]) == ("id_form_seen", binding_id)
    assert not advice["replaces"]
    answer = await world.client.post(bindings_path(), headers=world.admin, json=advice["body"])

    assert answer.status_code == 201
    assert (await answer.get_json())["subPattern"] == WITH_IDS
    assert await advice_of(world) == []


async def test_a_renamed_repository_is_bound_under_its_present_name(world):
    await world.bind()
    renamed = WITH_IDS.replace("payments@", "billing@")
    await remember(world, rejection(world.acme.id, sub=renamed))

    assert await kinds(world) == [("id_form_seen", renamed)]


@pytest.mark.parametrize(
    "changes",
    [
        {"is_verified": False},
        {"repository_id": "5"},
        {"sub": "repo:acme@77/payments@5:ref:refs/heads/main"},
    ],
)
async def test_what_may_be_made_up_says_nothing_of_ids(world, changes):
    """A token without a valid signature, or whose subject and repository disagree."""
    await world.bind()
    await remember(world, rejection(world.acme.id, **({"sub": WITH_IDS} | changes)))

    assert await kinds(world) == [("id_form_expected", None)]


async def test_an_owners_id_comes_from_the_tokens_of_its_bindings(world):
    """So that the binding for after a rename can be added before it."""
    used = await world.bind()
    await world.bind(sub_pattern="repo:acme/web:environment:prod", repository_id="5")
    await admit(world, used, repository_owner_id="77")

    assert dict.fromkeys(await kinds(world)) == dict.fromkeys(
        [
            ("id_form_expected", "repo:acme@77/web@5:environment:prod"),
            ("id_form_expected", WITH_IDS),
        ]
    )


async def test_a_binding_is_narrowed_to_what_its_tokens_had(world):
    binding_id = await world.bind(sub_pattern=WITH_IDS, event_names=[])
    await admit(world, binding_id, event_name="push", runner_environment="github-hosted")
    world.clock.advance(days=13)
    assert await advice_of(world) == [], "two weeks are not over"
    world.clock.advance(days=1)

    (advice,) = await advice_of(world)
    assert (advice["kind"], advice["replaces"]) == ("looser_than_use", True)
    assert advice["text"] == (
        "All its tokens since 2026-03-04 were started by push and had runner_environment"
        " github-hosted."
    )
    path = f"{bindings_path('acme', binding_id)}/replace"
    answer = await world.client.post(path, headers=world.admin, json=advice["body"])

    assert answer.status_code == 201
    (active,) = [each for each in await world.bindings() if each["revokedAt"] is None]
    assert active["eventNames"] == ["push"]
    assert active["conditions"] == {"runner_environment": "github-hosted"}


async def test_what_was_seen_long_ago_does_not_count(world):
    binding_id = await world.bind(sub_pattern=WITH_IDS, event_names=["push", "schedule"])
    await admit(world, binding_id, event_name="push")
    await admit(world, binding_id, event_name="schedule")
    world.clock.advance(days=89)
    assert await advice_of(world) == []
    await admit(world, binding_id, START + timedelta(days=89), event_name="push")
    world.clock.advance(days=2)

    assert [each["body"] for each in await advice_of(world)] == [{"event_names": ["push"]}]


async def test_wildcards_and_unknown_events_are_named(world):
    await world.bind(sub_pattern="repo:acme/b*", event_names=["psuh", "push", "pul_request"])
    await world.bind(sub_pattern=WITH_IDS, event_names=["psuh", "push"])
    await world.bind(sub_pattern=WITH_IDS, repository_id="5", event_names=["zzz"])

    found = {each["text"]: each["body"] for each in await advice_of(world)}

    assert found == {
        "Its subject has a wildcard, but is compared exactly: no token has this one.": None,
        "No GitHub job is started by psuh (push?).": {"event_names": ["push"]},
        "No GitHub job is started by zzz.": None,
    }


async def test_advice_is_the_organisations_own(world):
    await world.bind(event_names=["psuh"])

    assert await advice_of(world, "other") == []


async def test_the_page_has_a_form_for_each_that_one_press_follows(world):
    await world.bind()
    await remember(world, rejection(world.acme.id, sub=WITH_IDS))
    owner = world.session("owner")
    page = await open_page(world, f"{ORG}/trust/advice", **owner)
    fields = page.forms[f"{ORG}/bindings/new"]

    assert fields["sub_pattern"] == WITH_IDS
    answer = await world.client.post(
        f"{ORG}/bindings/new",
        form=fields,
        headers=owner | {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"},
    )
    assert answer.status_code == 303
    after = await open_page(world, f"{ORG}/trust/advice", **owner)
    assert "There is nothing to change." in after.html


CREATE = "Create the binding"
GITHUB = "https://token.actions.githubusercontent.com"
GITLAB = "https://gitlab.com"
CIRCLECI = "https://oidc.circleci.com/org/00000000-0000-0000-0000-000000000000"
NO_EVENTS = "Tokens of its issuer name no event: a binding with events matches none."


async def test_a_form_with_what_no_provider_sends_is_sent_twice(world):
    """A warning at its fields first, again at another one, and then it is as it was meant."""
    typed = {
        "issuer": GITHUB,
        "sub_pattern": "repo:acme/b*",
        "repository_id": "5",
        "event_names": "psuh",
        "origin": "org_admin",
    }
    blank = await open_page(world, f"{ORG}/bindings/new", **world.session("owner"))

    warned = await shown(await press(world, blank.html, CREATE, **typed), 400)
    assert "A subject is compared exactly: no token has one with a wildcard." in warned.html
    assert "No GitHub job is started by psuh (push?)." in warned.html
    again = await shown(await press(world, warned.html, CREATE, event_names="realese"), 400)
    assert "No GitHub job is started by realese (release?)." in again.html
    assert await world.bindings() == []

    assert (await press(world, again.html, CREATE)).status_code == 303
    assert len(await world.bindings()) == 1


async def test_the_form_that_replaces_a_binding_warns_as_well(world):
    binding_id = await world.bind()
    path = f"{ORG}/bindings/{binding_id}/replace"
    page = await open_page(world, path, **world.session("owner"))

    answer = await press(world, page.html, "Replace the binding", event_names="psuh")

    warned = await shown(answer, 400)
    assert "No GitHub job is started by psuh (push?)." in warned.html
    assert (await press(world, warned.html, "Replace the binding")).status_code == 303


@pytest.fixture
def every_issuer(settings, tmp_path):
    """Accept all issuers of the file that is shipped."""
    shipped = settings.issuers_file.read_text()
    accepted = tmp_path / "issuers.toml"
    accepted.write_text(shipped.replace("accepted = false", "accepted = true"))
    return msgspec.structs.replace(settings, issuers_file=accepted)


@pytest.mark.parametrize(
    ("issuer", "event", "warning"),
    [
        (GITHUB, "merge_request_event", "No GitHub job is started by merge_request_event"),
        (GITLAB, "pull_request", "No GitLab job is started by pull_request"),
        (GITLAB, "merge_request_event", None),
        (CIRCLECI, "push", NO_EVENTS),
        (CIRCLECI, "", None),
    ],
)
async def test_events_are_those_of_the_chosen_issuer(every_issuer, issuer, event, warning):
    """The form warns, and so does the advice on a binding that was created all the same."""
    async with running_world(every_issuer, SettableClock(START)) as world:
        blank = await open_page(world, f"{ORG}/bindings/new", **world.session("owner"))
        typed = {
            "issuer": issuer,
            "sub_pattern": WITH_IDS,
            "repository_id": "" if issuer == CIRCLECI else "5",
            "event_names": event,
            "origin": "org_admin",
        }
        answer = await press(world, blank.html, CREATE, **typed)
        if warning is None:
            assert answer.status_code == 303
            assert await advice_of(world) == []
            return
        warned = await shown(answer, 400)
        assert warning in warned.html
        await press(world, warned.html, CREATE)
        (advice,) = await advice_of(world)
        assert advice["text"].startswith(warning)


@pytest.mark.parametrize("replaces", [False, True])
async def test_advice_on_the_operators_binding_can_be_followed_by_members(world, replaces):
    """The operator's origin is not theirs to name: what they create is the organisation's."""
    binding_id = await world.bind(event_names=["psuh"])
    async with world.services.store.write() as work:
        binding = await work.session.get(Binding, binding_id)
        binding.origin = Origin.PLATFORM_ADMIN
    await remember(world, rejection(world.acme.id, sub=WITH_IDS))
    advice = next(each for each in await advice_of(world) if each["replaces"] == replaces)
    path = f"{bindings_path()}/{advice['bindingId']}/replace" if replaces else bindings_path()

    answer = await world.client.post(path, headers=world.session("owner"), json=advice["body"])

    assert answer.status_code == 201, await answer.get_data(as_text=True)
    assert (await answer.get_json())["origin"] == "org_admin"


async def test_names_are_compared_for_the_advice_that_is_listed(world, monkeypatch):
    """A comparison takes 0.1 ms, and 10,000 bindings may have 64 names each."""
    compared = []
    monkeypatch.setattr(
        "service.trust.advice.get_close_matches", lambda name, *_, **__: compared.append(name) or []
    )
    monkeypatch.setattr("service.trust.advice.LISTED_MAX", 2)
    for number in range(1, 6):
        names = [f"event-{number}-{each}" for each in range(20)]
        await world.bind(repository_id=str(number), event_names=names)

    response = await world.client.get(ADVICE.format("acme"), headers=world.admin)
    answer = await response.get_json()

    assert answer["counts"]["never_sent"] == 5
    assert len([each for each in answer["advice"] if each["kind"] == "never_sent"]) == 2
    assert len(compared) == 2 * NEAREST_MAX
