"""The API of members: what is answered and recorded, and what is refused."""

import pytest

from service.orgs.domains import set_domain
from service.orgs.members import add_member
from service.orgs.projects import create_project
from service.web.paging import ListCursors
from tests.conftest import BY_OPERATOR, World, refused
from tests.service.access.passkeys.holders import Holder
from tests.service.orgs.desk import answered, ask, last_row
from tests.service.pages.people.desk import actor, add_person, logged

NEW = {"email": "new@acme.example", "idp": "google", "role": "auditor"}
LAST_OWNER = "the last owner cannot be removed or changed: make another member an owner first"


async def test_members_are_listed_with_what_is_known_of_them(world: World) -> None:
    await Holder(world).with_session_of("auditor").register()
    listed = await answered(world, "GET", "/members")
    by_id = {member["id"]: member for member in listed["members"]}
    auditor, team_admin = (by_id[world.members[who].id] for who in ("auditor", "team_admin"))

    assert (listed["org"], listed["next_cursor"], len(by_id)) == ("acme", None, 5)
    assert auditor == {
        "id": world.members["auditor"].id,
        "email": "auditor@acme.example",
        "role": "auditor",
        "idp": "github",
        "created_at": "2026-03-04T12:00:00.123Z",
        "linked": False,
        "passkeys": 1,
        "last_seen_at": "2026-03-04T12:00:00.123Z",
        "teams": [],
    }
    assert team_admin["teams"] == ["platform"]


async def test_a_long_list_is_read_in_pages(world: World) -> None:
    async with world.services.store.write() as work:
        for number in range(5):
            email = f"p{number}@Many_.example"
            await add_member(work, world.acme, email, "member", "google", BY_OPERATOR)
    seen, cursor = [], {}
    while True:
        page = await answered(world, "GET", "/members", find="mANY_", limit="2", **cursor)
        seen.append([member["email"] for member in page["members"]])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}

    assert [len(part) for part in seen] == [2, 2, 1]
    assert [email for part in seen for email in part] == [f"p{n}@Many_.example" for n in range(5)]
    assert (await answered(world, "GET", "/members", find="%"))["members"] == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"find": "x" * 256}, "find must be at most 255 characters"),
        ({"limit": "501"}, "limit must be an integer from 1 to 500"),
        ({"limit": "0"}, "limit must be an integer from 1 to 500"),
        ({"cursor": "mem_missing"}, "cursor is not valid for this query"),
        ({"after": "a"}, "unknown query parameter: after"),
    ],
)
async def test_a_list_of_another_kind_is_refused(
    world: World, query: dict[str, str], text: str
) -> None:
    assert await refused(await ask(world, "GET", "/members", **query)) == (400, text)


@pytest.mark.parametrize(
    "path", ["/api/v1/admin/orgs/other/members", "/api/v1/admin/orgs/acme/projects"]
)
async def test_a_cursor_of_another_list_is_refused(world: World, path: str) -> None:
    """Its addresses could be guessed by where a list begins."""
    async with world.services.store.write() as work:
        await add_member(work, world.other, "more@other.example", "owner", "google", BY_OPERATOR)
        await create_project(work, world.acme, "more", BY_OPERATOR)
    page = await world.client.get(f"{path}?limit=1", headers=world.admin)
    cursor = (await page.get_json())["next_cursor"]

    answer = await ask(world, "GET", "/members", cursor=cursor)

    assert cursor is not None
    assert await refused(answer) == (400, "cursor is not valid for this query")


async def test_an_invitation_makes_a_member_and_one_row(world: World) -> None:
    answer = await ask(world, "POST", "/members", NEW)
    member = await answer.get_json()

    assert answer.status_code == 201
    assert {name: member[name] for name in NEW} == NEW
    assert await last_row(world) == (
        "member_added",
        actor(world, "owner"),
        member["id"],
        "admin_api",
    )


@pytest.mark.parametrize(
    ("field", "value", "status", "text"),
    [
        ("email", "nonsense", 400, "email must look like ada@example.com"),
        ("email", "a@b\n", 400, "email must look like ada@example.com"),
        ("email", "a\u202e@b", 400, "email must look like ada@example.com"),
        ("email", 5, 400, "email is required (string)"),
        ("email", "admin@acme.example", 409, "admin@acme.example is already a member of acme"),
        ("idp", "facebook", 400, "idp must be one of github, google, microsoft"),
        ("role", "king", 400, "role must be one of owner, admin, auditor, member"),
        ("name", "x", 400, "unknown field: name"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_faulty_invitation_changes_nothing(
    shared_world: World, field: str, value: object, status: int, text: str
) -> None:
    before = await logged(shared_world)

    assert await refused(await ask(shared_world, "POST", "/members", NEW | {field: value})) == (
        status,
        text,
    )
    assert await logged(shared_world) == before


async def test_a_member_without_a_role_is_a_member(world: World) -> None:
    body = {name: NEW[name] for name in ("email", "idp")}

    assert (await answered(world, "POST", "/members", body))["role"] == "member"


@pytest.mark.parametrize("name", ["id", "address"])
async def test_a_role_is_changed(world: World, name: str) -> None:
    auditor = world.members["auditor"]
    path = f"/members/{auditor.id if name == 'id' else auditor.email}/role"

    assert (await answered(world, "POST", path, {"role": "admin"}))["role"] == "admin"
    assert (await last_row(world))[:3] == (
        "member_role_changed",
        actor(world, "owner"),
        auditor.id,
    )


async def test_the_last_owner_stays(world: World) -> None:
    before = await logged(world)
    path = f"/members/{world.members['owner'].id}"

    answer = await ask(world, "POST", f"{path}/role", {"role": "member"})
    assert await refused(answer) == (400, LAST_OWNER)
    assert await refused(await ask(world, "DELETE", path)) == (400, LAST_OWNER)
    assert await logged(world) == before


async def test_a_removed_member_is_signed_out_and_gone(world: World) -> None:
    path = f"/members/{world.members['auditor'].id}"

    removed = await answered(world, "DELETE", path)
    assert removed["email"] == "auditor@acme.example"
    assert (await last_row(world))[0] == "member_removed"
    assert (await ask(world, "GET", "/audit", who="auditor")).status_code == 401
    status, text = await refused(await ask(world, "DELETE", path))
    assert (status, text) == (404, f"Member not found for this org: {world.members['auditor'].id}")


async def test_sessions_are_ended_and_counted(world: World) -> None:
    auditor = world.members["auditor"].id

    ended = await answered(world, "POST", f"/members/{auditor}/sign-out")
    assert ended == {"member": auditor, "sessions": 1}
    assert (await last_row(world))[0] == "session_revoked"
    assert (await ask(world, "GET", "/audit", who="auditor")).status_code == 401


async def test_passkeys_are_removed_and_counted(world: World) -> None:
    auditor = world.members["auditor"].id
    await Holder(world).with_session_of("auditor").register()

    removed = await answered(world, "POST", f"/members/{auditor}/remove-passkeys")
    assert removed == {"member": auditor, "passkeys": 1}
    assert (await last_row(world))[0] == "passkey_removed"


async def test_a_sign_in_link_works_and_is_kept_by_no_cache(world: World) -> None:
    auditor = world.members["auditor"].id
    answer = await ask(world, "POST", f"/members/{auditor}/link")
    issued = await answer.get_json()
    link = issued.pop("link")
    token = link.removeprefix("http://localhost:8080/sign-in?token=")

    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    assert issued == {"member": auditor, "email": "auditor@acme.example"}
    assert token not in str(await world.audit())
    used = await world.client.post(
        "/sign-in", form={"token": token}, headers={"origin": "http://localhost:8080"}
    )
    assert used.status_code == 303
    assert (await logged(world))[0][:2] == ("link_sign_in_succeeded", actor(world, "auditor"))


@pytest.mark.parametrize("what", ["role", "sign-out", "remove-passkeys", "link", ""])
@pytest.mark.parametrize("whom", ["their_member", "missing"])
async def test_no_other_organisations_member_is_found(world: World, what: str, whom: str) -> None:
    await add_person(world, "their_member", "member", "other")
    member_id = world.members["their_member"].id if whom == "their_member" else "mem_missing"
    before = await world.audit("other")
    path = f"/members/{member_id}/{what}".rstrip("/")
    method = "POST" if what else "DELETE"
    answer = await ask(world, method, path, {"role": "auditor"} if what == "role" else None)

    assert await refused(answer) == (404, f"Member not found for this org: {member_id}")
    assert await world.audit("other") == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/members", NEW),
        ("POST", "/members/{member}/role", {"role": "member"}),
        ("POST", "/members/{member}/remove-passkeys", None),
        ("POST", "/members/{member}/link", None),
        ("POST", "/teams/{team}/admins", {"member": "auditor@acme.example"}),
        ("PUT", "/roles/member", {"capabilities": ["audit:r"]}),
    ],
)
async def test_what_gives_access_needs_a_recent_sign_in(
    world: World, method: str, path: str, body: object
) -> None:
    world.clock.advance(seconds=world.services.settings.recent_sign_in_s + 1)
    before = await logged(world)
    path = path.format(member=world.members["auditor"].id, team=world.team.id)

    assert await refused(await ask(world, method, path, body)) == (
        403,
        "sign in again to do this",
    )
    assert await logged(world) == before


async def test_domains_tier_and_hold_are_read(world: World) -> None:
    async with world.services.store.write() as work:
        await set_domain(work, world.acme, "acme.example", "google", BY_OPERATOR, is_allowed=True)

    listed = await answered(world, "GET", "/domains")
    assert listed["domains"] == [
        {"domain": "acme.example", "idp": "google", "added_at": "2026-03-04T12:00:00.123Z"}
    ]
    shown = await answered(world, "GET", "")
    assert (shown["slug"], shown["tier"], shown["held_since"]) == ("acme", "org", None)
    assert shown["retention_days"] == 365


def test_the_key_of_cursors_is_in_no_text() -> None:
    cursors = ListCursors(b"a key of cursors", ("members", "org_1"))

    assert "a key" not in repr(cursors)
