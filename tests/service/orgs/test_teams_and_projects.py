"""The API of teams, their admins, and projects."""

import pytest

from service.orgs.projects import create_project
from service.orgs.teams import create_team
from tests.conftest import BY_OPERATOR, World, grant, refused
from tests.service.orgs.desk import answered, ask, last_row
from tests.service.pages.people.desk import actor, add_person, logged

KINDS = ["team", "project"]
NAME = "name must be 1 to 100 printable characters"


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_made_and_listed_with_one_row(world: World, kind: str) -> None:
    answer = await ask(world, "POST", f"/{kind}s", {"name": "مرحبا"})
    made = await answer.get_json()
    listed = await answered(world, "GET", f"/{kind}s")

    assert (answer.status_code, made["name"]) == (201, "مرحبا")
    assert made["created_at"] == "2026-03-04T12:00:00.123Z"
    assert made in [
        {name: each[name] for name in ("id", "name", "created_at")} for each in listed[f"{kind}s"]
    ]
    assert (await last_row(world))[:3] == (f"{kind}_created", actor(world, "owner"), made["id"])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_list_is_read_in_pages(world: World, kind: str) -> None:
    make = create_team if kind == "team" else create_project
    async with world.services.store.write() as work:
        await make(work, world.other, "Many_theirs", BY_OPERATOR)
        for number in range(3):
            await make(work, world.acme, f"Many_{number}", BY_OPERATOR)
    first = await answered(world, "GET", f"/{kind}s", find="mANY_", limit="2")
    cursor = first["next_cursor"]
    second = await answered(world, "GET", f"/{kind}s", find="mANY_", limit="2", cursor=cursor)

    names = [[each["name"] for each in page[f"{kind}s"]] for page in (first, second)]
    assert names == [["Many_0", "Many_1"], ["Many_2"]]
    assert second["next_cursor"] is None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cursor_is_good_for_its_own_list_only(world: World, kind: str) -> None:
    make = create_team if kind == "team" else create_project
    async with world.services.store.write() as work:
        for number in range(2):
            await make(work, world.acme, f"Many_{number}", BY_OPERATOR)
    query = {"find": "Many_", "limit": "1"}
    cursor = (await answered(world, "GET", f"/{kind}s", **query))["next_cursor"]
    tampered = cursor[:5] + ("A" if cursor[5] != "A" else "B") + cursor[6:]
    other = "projects" if kind == "team" else "teams"

    for path, sent in (
        (f"/{kind}s", query | {"cursor": tampered}),
        (f"/{kind}s", {"cursor": cursor}),
        (f"/{kind}s", query | {"cursor": world.team.id}),
        (f"/{other}", query | {"cursor": cursor}),
    ):
        answer = await ask(world, "GET", path, **sent)
        assert await refused(answer) == (400, "cursor is not valid for this query")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("", 400, NAME),
        ("x" * 101, 400, NAME),
        ("two\u2028lines", 400, NAME),
        (None, 400, "name is required (string)"),
        (..., 409, "{kind} {name} already exists in acme"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_faulty_name_changes_nothing(
    shared_world: World, kind: str, name: object, status: int, text: str
) -> None:
    typed = {"team": "platform", "project": "payments"}[kind] if name is ... else name
    before = await logged(shared_world)

    answer = await ask(shared_world, "POST", f"/{kind}s", {"name": typed})
    assert await refused(answer) == (status, text.format(kind=kind, name=typed))
    assert await logged(shared_world) == before


async def test_a_team_admin_is_added_and_removed(world: World) -> None:
    auditor, admins = world.members["auditor"], f"/teams/{world.team.id}/admins"
    added = await answered(world, "POST", admins, {"member": auditor.email})
    (team,) = (await answered(world, "GET", "/teams"))["teams"]
    removed = await answered(world, "DELETE", f"{admins}/{auditor.id}")
    again = await answered(world, "DELETE", f"{admins}/{auditor.id}")

    change = {
        "team": world.team.id,
        "name": world.team.name,
        "member": auditor.id,
        "email": auditor.email,
        "is_admin": True,
    }
    assert (added, removed) == (change, change | {"is_admin": False})
    assert again == removed
    assert [admin["email"] for admin in team["admins"]] == [
        "auditor@acme.example",
        "team_admin@acme.example",
    ]
    row = ("team_admin_changed", actor(world, "owner"), auditor.id)
    assert (await logged(world))[:2] == [row, row]
    assert [entry[0] for entry in await logged(world)].count("team_admin_changed") == 3


@pytest.mark.parametrize("which", ["team", "member"])
async def test_what_is_another_organisations_is_not_found(world: World, which: str) -> None:
    async with world.services.store.write() as work:
        their_team = await create_team(work, world.other, "theirs", BY_OPERATOR)
    stranger = world.members["stranger"].id
    theirs = stranger if which == "member" else their_team.id
    team = world.team.id if which == "member" else theirs
    before = await logged(world)

    answer = await ask(world, "POST", f"/teams/{team}/admins", {"member": stranger})
    assert await refused(answer) == (404, f"{which.capitalize()} not found for this org: {theirs}")
    assert await logged(world) == before


@pytest.mark.parametrize("what", ["POST", "DELETE"])
async def test_no_one_decides_over_a_role_beyond_their_own(world: World, what: str) -> None:
    await grant(world, "admin", "org:admin")
    await add_person(world, "second_owner", "owner")
    owner, admins = world.members["second_owner"].id, f"/teams/{world.team.id}/admins"
    if what == "DELETE":
        await answered(world, "POST", admins, {"member": owner})
    before = await logged(world)
    answer = await (
        ask(world, "POST", admins, {"member": owner}, "admin")
        if what == "POST"
        else ask(world, "DELETE", f"{admins}/{owner}", who="admin")
    )

    assert await refused(answer) == (
        403,
        "this role has rights beyond your own: ask a member who has it",
    )
    assert await logged(world) == before
