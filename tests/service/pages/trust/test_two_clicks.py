"""From the rejected page to a trusted job in two clicks, whatever the job lacks."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from service.ci.verifier.codes import Detail
from tests.budgets import sample
from tests.conftest import ISSUER, START, World, bindings_path
from tests.service.pages.page import Page, press
from tests.service.pages.trust.pages import REJECTED, SUB, add_team, see
from tests.service.trust.rejected.notes import rejection, remember

RENAMED = SUB.replace("payments", "Payments")
QUALIFIED = "repo:acme@1/payments@2:ref:refs/heads/main"
CREATE, REPLACE, BESIDE = "Create the binding", "Replace the binding", "Add beside it"


async def nothing(world: World) -> None:
    """No binding at all."""


async def unlike(world: World) -> None:
    """Another branch of the repository is trusted."""
    await world.bind(sub_pattern="repo:acme/payments:ref:refs/heads/next")


async def other_events(world: World) -> None:
    await world.bind(event_names=["schedule", "release"])


async def other_project(world: World) -> None:
    await world.bind(project_id=world.project.id)


async def earlier_name(world: World) -> None:
    await world.bind(sub_pattern=RENAMED, event_names=["schedule"])


async def renamed_repository(world: World) -> None:
    await world.bind(sub_pattern=SUB.replace("payments", "pay"), event_names=["schedule"])


async def earlier_ids(world: World) -> None:
    await world.bind(sub_pattern=QUALIFIED)


async def other_repository(world: World) -> None:
    await world.bind(repository_id="5")


async def revoked(world: World) -> None:
    await world.revoke(await world.bind())


async def lost_envelope(world: World) -> None:
    envelope = await world.bind()
    await world.bind(origin="team_admin", team_id=world.team.id)
    await world.revoke(envelope)


async def narrow_envelope(world: World) -> None:
    await world.bind(event_names=["schedule"])
    await world.bind(origin="team_admin", team_id=world.team.id, event_names=[])


State = Callable[[World], Awaitable[None]]
CASES: list[tuple[State, str]] = [
    (nothing, CREATE),
    (unlike, CREATE),
    (other_events, REPLACE),
    (other_project, REPLACE),
    (earlier_name, REPLACE),
    (earlier_name, BESIDE),
    (renamed_repository, REPLACE),
    (renamed_repository, BESIDE),
    (earlier_ids, REPLACE),
    (other_repository, REPLACE),
    (other_repository, BESIDE),
    (revoked, CREATE),
    (lost_envelope, CREATE),
    (narrow_envelope, REPLACE),
]


async def is_trusted(world: World, **changes: Any) -> bool:
    """Whether such a job, sent with a key of `project_id`, would be trusted now."""
    claims = {
        "iss": ISSUER,
        "aud": "countersign",
        "sub": SUB,
        "repository_id": "123456789",
        "event_name": "push",
        "exp": int(START.timestamp()) + 600,
    }
    project_id = changes.pop("project_id", None)
    answer = await world.client.post(
        f"{bindings_path()}/explain",
        headers=world.admin,
        json={"claims": claims | changes, "project_id": project_id},
    )
    return (await answer.get_json())["passes"]


async def first_click(world: World) -> Page:
    """The page that the rejected page leads to."""
    rejected = await see(world, REJECTED)
    (href,) = [
        link.attributes["href"]
        for link in rejected.all("a")
        if link.attributes.get("class") == "button small" and "?from=" in link.attributes["href"]
    ]
    return await see(world, href)


@sample(4)
@pytest.mark.parametrize(
    ("state", "label"), CASES, ids=lambda value: getattr(value, "__name__", value)
)
async def test_two_clicks_from_rejected_to_trusted(world: World, state: State, label: str):
    await state(world)
    active = await world.bindings(state="active")
    await remember(world, rejection(world.acme.id))
    assert not await is_trusted(world)

    page = await first_click(world)
    answer = await press(world, page.html, label)

    assert answer.status_code == 303, await answer.get_data(as_text=True)
    assert await is_trusted(world)
    left = {each["id"] for each in await world.bindings(state="active")}
    replaced = [each for each in active if each["id"] not in left]
    assert len(replaced) == (label == REPLACE)
    if label != REPLACE:
        assert len(left) == len(active) + 1


async def test_a_job_of_a_renamed_repository_is_explained_and_fixed_in_two_clicks(world: World):
    """GitHub puts ids into the subjects of a repository once it is renamed."""
    earlier = await world.bind(event_names=["push", "schedule"])
    sub = "repo:acme@77/ledger@123456789:ref:refs/heads/main"
    assert not await is_trusted(world, sub=sub)
    await remember(world, rejection(world.acme.id, sub=sub))

    page = await first_click(world)

    status = " ".join(page.one("div", role="status").text.split())
    assert "A binding has the earlier name of its repository." in status
    why = "Its repository was called acme/payments and is acme/ledger now: the id is the same."
    assert why in page.one("main").text
    answer = await press(world, page.html, REPLACE)
    assert answer.status_code == 303
    assert await is_trusted(world, sub=sub)
    assert await is_trusted(world, sub=sub, event_name="schedule")
    (active,) = await world.bindings(state="active")
    assert active["subPattern"] == sub
    replaced = next(one for one in await world.bindings() if one["id"] == earlier)
    assert replaced["revokedReason"] == f"replaced by {active['id']}"


async def test_of_two_bindings_that_match_alike_one_is_revoked_on_the_card(world: World):
    """One more binding would not help; which of them stays is for a person to say."""
    await world.bind()
    kept = await world.bind(origin="team_admin", team_id=world.team.id)
    second = await add_team(world, "second")
    other = await world.bind(origin="team_admin", team_id=second.id)
    await remember(world, rejection(world.acme.id, detail=Detail.BINDING_AMBIGUOUS))
    assert not await is_trusted(world)

    page = await first_click(world)
    answer = await press(world, page.html, f"Revoke permanently {other}")

    assert answer.status_code == 303
    assert await is_trusted(world)
    assert kept in {each["id"] for each in await world.bindings(state="active")}


async def test_a_draft_that_was_edited_first_is_sent_as_edited(world: World):
    await other_events(world)
    await remember(world, rejection(world.acme.id))
    page = await first_click(world)

    answer = await press(world, page.html, REPLACE, event_names="push\nmerge_group")

    assert answer.status_code == 303
    (active,) = await world.bindings(state="active")
    assert active["eventNames"] == ["push", "merge_group"]


async def test_a_second_person_who_was_late_is_told(world: World):
    await other_events(world)
    await remember(world, rejection(world.acme.id))
    page = await first_click(world)
    await press(world, page.html, REPLACE)

    late = await press(world, page.html, REPLACE)

    assert late.status_code == 409
    assert "replaced by obind_" in await late.get_data(as_text=True)
    assert len(await world.bindings(state="active")) == 1
