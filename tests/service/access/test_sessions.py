"""How a session begins, how long it lasts and how it ends."""

import re

import msgspec
import pytest
from sqlalchemy import func, select
from werkzeug.datastructures import Headers

from service.access.sessions import revoke_sessions
from service.app.application import create_app
from service.core.settings import Settings
from service.orgs.members import remove_member
from service.store.tables import Member, Session, SignInLink
from tests.conftest import BY_OPERATOR, World, bindings_path, refused
from tests.service.pages.page import ORG, open_page

OWN = {"origin": "http://localhost:8080"}
USED_UP = (401, "this sign-in link was already used, has expired or is invalid")
UNAUTHENTICATED = (401, "missing or invalid credentials")


async def sign_in(world: World, token: str, origin: dict[str, str] = OWN):
    return await world.client.post("/sign-in", headers=origin, form={"token": token})


async def listed(world: World, name: str = "owner"):
    """List bindings with the member's session; the response."""
    return await world.client.get(bindings_path(), headers=world.session(name))


async def test_a_link_signs_in_once(world: World):
    """A link found later, in a log or a mailbox, is used up."""
    token = await world.sign_in_link()

    first = await sign_in(world, token)

    assert first.status_code == 303
    assert first.headers["location"] == "/admin/ui/orgs/acme"
    assert await refused(await sign_in(world, token)) == USED_UP


async def test_opening_a_link_does_not_use_it_up(world: World):
    """Mail scanners and previews open links; a person presses the button."""
    token = await world.sign_in_link()
    for _ in range(3):
        page = await world.client.get("/sign-in", query_string={"token": token})
        assert page.status_code == 200
        assert "set-cookie" not in page.headers

    assert (await sign_in(world, token)).status_code == 303


@pytest.mark.parametrize(("seconds", "status"), [(599, 303), (600, 401), (601, 401)])
async def test_a_link_is_good_for_ten_minutes(world: World, seconds: int, status: int):
    token = await world.sign_in_link()
    world.clock.advance(seconds=seconds)

    assert (await sign_in(world, token)).status_code == status


@pytest.mark.parametrize("token", ["", "garbage", "é", "\x00", "x" * 10_000])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_link_is_refused(shared_world: World, token: str):
    assert await refused(await sign_in(shared_world, token)) == USED_UP


async def test_a_removed_members_link_is_refused(world: World):
    token = await world.sign_in_link("auditor")
    async with world.services.store.write() as work:
        member = await work.session.get_one(Member, world.members["auditor"].id)
        await remove_member(work, world.acme, member, BY_OPERATOR)

    assert await refused(await sign_in(world, token)) == USED_UP


async def test_signing_in_and_out_leaves_one_row_each(world: World):
    owner = world.members["owner"]
    before = len(await world.audit())
    signed_in = await sign_in(world, await world.sign_in_link())
    await sign_in(world, "garbage")

    rows = await world.audit()
    assert [row["event"] for row in rows[:2]] == ["link_sign_in_succeeded", "session_issued"]
    assert len(rows) == before + 2
    row = rows[0]
    assert row["payload"] == {"member_id": owner.id}
    assert (row["actor"], row["actor_source"]) == (f"github:{owner.id}", "session")
    assert (row["subject"], row["verdict_source"]) == (owner.id, "dashboard")
    assert row["request_id"] == signed_in.headers["x-request-id"]


async def test_signing_out_empties_the_browsers_cache(world: World):
    """The next person at the machine must not go back to a page that the browser has kept."""
    session = world.session("owner")
    page = await open_page(world, ORG, **session)

    answer = await world.client.post(
        "/sign-out", headers=OWN | session, form=page.forms["/sign-out"]
    )

    assert answer.status_code == 303
    assert answer.headers["clear-site-data"] == '"cache"'


@pytest.mark.parametrize(
    ("base_url", "is_secure"),
    [
        ("http://localhost:8080", False),
        ("http://127.0.0.1:8080", False),
        ("https://localhost:8080", True),
        ("https://countersign.example", True),
        ("http://countersign.example", True),
    ],
)
class TestTheCookie:
    @pytest.fixture
    def settings(self, settings: Settings, base_url: str) -> Settings:
        return msgspec.structs.replace(settings, base_url=base_url)

    async def test_it_is_out_of_reach_of_scripts_and_other_sites(
        self, world: World, base_url: str, is_secure: bool
    ):
        """Secure is off only for plain http on this machine, where browsers would drop it."""
        answer = await sign_in(world, await world.sign_in_link(), {"origin": base_url})

        value, *attributes = answer.headers["set-cookie"].split("; ")
        assert re.fullmatch(r"admin_session=csess_[\w-]{43}", value, re.ASCII)
        kept = {attribute for attribute in attributes if not attribute.startswith("Expires=")}
        assert kept == {"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=604800"} | (
            {"Secure"} if is_secure else set()
        )


async def test_the_cookie_of_a_sign_in_is_a_session(world: World):
    answer = await sign_in(world, await world.sign_in_link())
    cookie = answer.headers["set-cookie"].partition(";")[0]

    listing = await world.client.get(bindings_path(), headers={"cookie": cookie})

    assert listing.status_code == 200


@pytest.mark.parametrize("who", [None, "stranger"])
async def test_a_cookie_from_before_a_sign_in_is_not_adopted(world: World, who: str | None):
    """A person who planted it in the browser would share its owner's session."""
    planted = world.cookies[who] if who else "planted"
    before = {"cookie": f"admin_session={planted}"}

    answer = await sign_in(world, await world.sign_in_link(), OWN | before)

    assert answer.headers["set-cookie"].partition(";")[0] != before["cookie"]
    listing = await world.client.get(bindings_path(), headers=before)
    assert listing.status_code == (403 if who else 401)


@pytest.mark.parametrize(("seconds", "status"), [(-1, 200), (0, 401), (1, 401)])
async def test_a_session_ends_when_it_was_idle_too_long(world: World, seconds: int, status: int):
    world.clock.advance(hours=6)
    assert (await listed(world)).status_code == 200

    world.clock.advance(seconds=world.services.settings.session_idle_s + seconds)

    assert (await listed(world)).status_code == status


@pytest.mark.parametrize(("seconds", "status"), [(-1, 200), (0, 401), (1, 401)])
async def test_a_session_ends_at_its_absolute_age_however_busy(
    world: World, seconds: int, status: int
):
    """A stolen cookie that is kept in use must end, too."""
    settings = world.services.settings
    steps = int(settings.session_absolute_s // (11 * 3600))
    for _ in range(steps):
        world.clock.advance(hours=11)
        assert (await listed(world)).status_code == 200

    world.clock.advance(seconds=settings.session_absolute_s - steps * 11 * 3600 + seconds)

    assert (await listed(world)).status_code == status


async def test_removing_a_member_ends_their_sessions_at_once(world: World):
    assert (await listed(world, "auditor")).status_code == 403
    async with world.services.store.write() as work:
        member = await work.session.get_one(Member, world.members["auditor"].id)
        await remove_member(work, world.acme, member, BY_OPERATOR)

    assert await refused(await listed(world, "auditor")) == UNAUTHENTICATED


async def test_without_a_configured_admin_token_no_token_matches(world: World):
    """An empty setting must not make the empty token a good one."""
    app = create_app(msgspec.structs.replace(world.services.settings, admin_token=""))

    async with app.test_app() as running:
        for token in ("", "x", "test-admin-token"):
            answer = await running.test_client().get(
                bindings_path(), headers={"x-service-admin-token": token}
            )
            assert await refused(answer) == UNAUTHENTICATED


async def test_a_link_that_is_no_longer_good_leaves_a_row_about_the_attempt(world: World):
    """An old link was used: its owner's organisation should be able to see that."""
    token = await world.sign_in_link()
    await sign_in(world, token)

    await sign_in(world, token)

    row = (await world.audit(event="sign_in_failed"))[0]
    assert row["subject"] == world.members["owner"].id
    assert row["actor"] == f"github:{world.members['owner'].id}"
    assert row["payload"] == {"method": "link", "reason": "the link was used, or has expired"}
    assert row["tenant_id"] == world.acme.id


async def test_a_link_that_never_was_leaves_no_row(world: World):
    """It names no organisation whose log it could fill."""
    before = await world.audit()

    await sign_in(world, "garbage")

    assert await world.audit() == before


async def test_ending_all_sessions_ends_unused_links_too(world: World):
    """A member whose sessions were ended must not come back by a link from before."""
    token = await world.sign_in_link()
    async with world.services.store.write() as work:
        await revoke_sessions(work.session, world.members["owner"].id, work.now)

    assert await refused(await sign_in(world, token)) == USED_UP


# What is left of those that ended


async def stored(world: World) -> tuple[int, int]:
    """How many sessions and sign-in links are in the database."""
    async with world.services.store.read() as session:
        sessions = await session.scalar(select(func.count()).select_from(Session))
        links = await session.scalar(select(func.count()).select_from(SignInLink))
    return sessions or 0, links or 0


async def test_ended_sessions_and_links_are_deleted_after_a_month(world: World):
    """They idle out after 12 hours; a database that is never cleared grows forever."""
    await world.sign_in_link()
    sessions, _ = await stored(world)
    world.clock.advance(minutes=1)
    await sign_in(world, await world.sign_in_link())
    for advance, left in (
        ({"days": 30}, (sessions + 1, 2)),
        ({"minutes": 10}, (sessions + 1, 0)),
        ({"hours": 12}, (sessions, 0)),
    ):
        world.clock.advance(**advance)
        await world.services.authenticator.delete_expired_sessions()
        assert await stored(world) == left


async def test_each_members_last_session_stays(world: World):
    """The list of members says by it when they were last here, however long ago."""
    sessions, _ = await stored(world)
    world.clock.advance(days=400)
    await world.services.authenticator.delete_expired_sessions()

    assert (await stored(world))[0] == sessions


async def test_a_session_that_was_revoked_lately_stays(world: World):
    """Its owner may ask what it was."""
    sessions, _ = await stored(world)
    for _ in range(2):
        world.clock.advance(minutes=1)
        assert (await sign_in(world, await world.sign_in_link())).status_code == 303
    async with world.services.store.write() as work:
        first = (
            await work.session.scalars(select(Session).order_by(Session.created_at.desc()))
        ).all()[1]
        first.revoked_at = work.now
    await world.services.authenticator.delete_expired_sessions()

    assert (await stored(world))[0] == sessions + 2
    world.clock.advance(days=30)
    await world.services.authenticator.delete_expired_sessions()
    assert (await stored(world))[0] == sessions + 1


async def test_two_bearer_tokens_are_no_credential(world: World):
    """It would be ambiguous whose request it is; other schemes belong to a proxy in front."""
    bearer = ("authorization", f"Bearer {world.cookies['owner']}")
    basic = ("authorization", "Basic cHJveHk6cHJveHk=")

    one = await world.client.get(bindings_path(), headers=Headers([basic, bearer]))
    two = await world.client.get(bindings_path(), headers=Headers([bearer, bearer]))

    assert one.status_code == 200
    assert await refused(two) == UNAUTHENTICATED
