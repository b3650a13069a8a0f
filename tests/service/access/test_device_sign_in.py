"""Signing a command line in (RFC 8628): asked for, approved on a page, redeemed once."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import func, select

from service.access import device_sign_in
from service.access.device_sign_in import ALPHABET, new_user_code, parse_user_code
from service.access.sessions import delete_expired_sessions, revoke_sessions
from service.access.sign_in.rate_limit import PER_ADDRESS_MAX
from service.orgs.members import remove_member, set_role
from service.pages.sign_in.device import CLIENT_ID, GRANT_TYPE
from service.store.tables import DeviceSignIn, Member, Session
from tests.conftest import BY_OPERATOR, World, bindings_path
from tests.other_programs import stored_bytes
from tests.service.browsing import Browser

CODE = "/api/v1/device/code"
TOKEN = "/api/v1/device/token"
OWN_SESSION = "/api/v1/session"
KEYS = "/api/v1/admin/orgs/acme/api-keys"
AGENT = "countersign/0.1 (laptop)"
CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


@dataclass
class Device:
    world: World
    device_code: str
    user_code: str

    async def poll(self) -> tuple[int, str]:
        """The status of a poll, and its token or the code of its error."""
        return await poll(self.world, self.device_code)


async def send(world: World, path: str, **form: str) -> tuple[int, Any]:
    """The status and JSON of a form that a device sends."""
    client = world.app.test_client(use_cookies=False)
    answer = await client.post(path, form=form, headers={"user-agent": AGENT})
    return answer.status_code, await answer.get_json()


async def ask(world: World) -> Device:
    """A device with fresh codes."""
    status, codes = await send(world, CODE, client_id=CLIENT_ID)
    assert status == 200
    return Device(world, codes["device_code"], codes["user_code"])


async def poll(world: World, device_code: str) -> tuple[int, str]:
    form = {"grant_type": GRANT_TYPE, "device_code": device_code, "client_id": CLIENT_ID}
    status, body = await send(world, TOKEN, **form)
    return status, body["access_token"] if status == 200 else body["error"]


def browser(world: World, name: str = "owner") -> Browser:
    return Browser(world, {"admin_session": world.cookies[name]})


async def decide(
    world: World, typed: str, decision: str = "approve", name: str = "owner"
) -> tuple[int, str]:
    """Open the page, type the code and press a button; the last status and page."""
    at = browser(world, name)
    csrf = CSRF.search(await (await at.get("/device")).get_data(as_text=True))[1]
    review = await at.post("/device", code=typed, csrf=csrf)
    page = await review.get_data(as_text=True)
    if review.status_code != 200:
        return review.status_code, page
    assert AGENT in page
    (code,) = re.findall(r'name="code" value="([A-Z-]+)"', page)
    answer = await at.post("/device/decision", code=code, decision=decision, csrf=csrf)
    return answer.status_code, await answer.get_data(as_text=True)


async def own_session(world: World, token: str) -> tuple[int, Any]:
    answer = await world.client.get(OWN_SESSION, headers={"authorization": f"Bearer {token}"})
    return answer.status_code, await answer.get_json()


async def test_an_approved_device_gets_a_session_of_the_member(world: World):
    device = await ask(world)
    assert await device.poll() == (400, "authorization_pending")

    status, page = await decide(world, device.user_code)

    assert status == 200
    assert "is signed in" in page
    status, token = await device.poll()
    assert status == 200
    status, who = await own_session(world, token)
    owner = world.members["owner"]
    assert status == 200
    assert (who["credential"], who["org"]) == ("session", "acme")
    assert who["member"] == {"id": owner.id, "email": owner.email, "role": "owner"}
    (row,) = await world.audit(event="device_sign_in_succeeded")
    assert (row["actor"], row["subject"]) == (f"github:{owner.id}", owner.id)
    assert row["payload"]["session_id"] == who["session_id"]
    async with world.services.store.read() as session:
        listed = await session.get_one(Session, who["session_id"])
        approver = await session.get_one(Session, row["payload"]["approved_in"])
    assert listed.user_agent == AGENT
    assert (approver.member_id, listed.member_id) == (owner.id, owner.id)
    profile = await (await browser(world).get("/admin/ui/profile")).get_data(as_text=True)
    assert AGENT in profile


async def test_a_code_gives_one_session(world: World):
    device = await ask(world)
    await decide(world, device.user_code)

    answers = await asyncio.gather(*(device.poll() for _ in range(8)))

    assert sorted(status for status, _ in answers) == [200] + [400] * 7
    assert {said for status, said in answers if status == 400} == {"invalid_grant"}
    assert len(await world.audit(event="device_sign_in_succeeded")) == 1
    assert await device.poll() == (400, "invalid_grant")
    status, page = await decide(world, device.user_code)
    assert status == 400
    assert "no sign-in waits under this code" in page


async def test_a_failure_midway_leaves_the_code_usable(world: World, monkeypatch):
    device = await ask(world)
    await decide(world, device.user_code)

    async def count_sessions() -> int:
        async with world.services.store.read() as session:
            return await session.scalar(select(func.count()).select_from(Session)) or 0

    before = await count_sessions()
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise RuntimeError("killed between the steps")

        patch.setattr(device_sign_in, "member_context", fail)
        status, _ = await send(
            world,
            TOKEN,
            grant_type=GRANT_TYPE,
            device_code=device.device_code,
            client_id=CLIENT_ID,
        )
        assert status == 500
    assert await count_sessions() == before
    assert await world.audit(event="device_sign_in_succeeded") == []

    assert (await device.poll())[0] == 200


async def test_a_denial_is_recorded_and_final(world: World):
    """A member who was tricked into opening the page has a record of it."""
    device = await ask(world)

    status, page = await decide(world, device.user_code, "deny")

    assert status == 200
    assert "was denied" in page
    assert await device.poll() == (400, "access_denied")
    assert (await decide(world, device.user_code))[0] == 400
    (row,) = await world.audit(event="sign_in_failed")
    assert row["payload"] == {"method": "device", "reason": device_sign_in.DENIED}
    assert row["subject"] == world.members["owner"].id


async def test_two_decisions_at_once_are_one(world: World):
    device = await ask(world)

    answers = await asyncio.gather(
        decide(world, device.user_code), decide(world, device.user_code, "deny", "auditor")
    )

    assert sorted(status for status, _ in answers) == [200, 400]
    is_approved = answers[0][0] == 200
    assert ((await device.poll())[0] == 200) is is_approved


async def test_codes_expire_after_ten_minutes(world: World):
    late, approved = await ask(world), await ask(world)
    world.clock.advance(seconds=599)
    assert (await decide(world, approved.user_code))[0] == 200
    world.clock.advance(seconds=1)

    assert await approved.poll() == (400, "expired_token")
    assert (await decide(world, late.user_code))[0] == 400
    async with world.services.store.write() as work:
        await delete_expired_sessions(
            work.session, world.services.authenticator.lifetimes, work.now
        )
    assert await late.poll() == (400, "expired_token")
    world.clock.advance(hours=1)
    async with world.services.store.write() as work:
        await delete_expired_sessions(
            work.session, world.services.authenticator.lifetimes, work.now
        )
    assert await late.poll() == (400, "invalid_grant")


async def test_a_device_that_polls_too_soon_is_told_to_slow_down(world: World):
    """Its interval grows by 5 seconds each time (RFC 8628, 3.5)."""
    device = await ask(world)
    assert await device.poll() == (400, "authorization_pending")
    world.clock.advance(seconds=5)
    assert await device.poll() == (400, "authorization_pending")
    world.clock.advance(seconds=2)
    assert await device.poll() == (400, "slow_down")
    world.clock.advance(seconds=5)
    assert await device.poll() == (400, "slow_down")
    world.clock.advance(seconds=15)
    assert await device.poll() == (400, "authorization_pending")


@pytest.mark.parametrize("ends", ["removed", "promoted", "signed out everywhere", "signed out"])
async def test_an_approval_ends_with_the_session_it_was_given_in(world: World, ends: str):
    """What ends a member's sessions must not leave one to be redeemed."""
    device = await ask(world)
    assert (await decide(world, device.user_code, name="auditor"))[0] == 200
    async with world.services.store.write() as work:
        member = await work.session.get_one(Member, world.members["auditor"].id)
        if ends == "removed":
            await remove_member(work, world.acme, member, BY_OPERATOR)
        elif ends == "promoted":
            await set_role(work, world.acme, member, "owner", BY_OPERATOR)
        elif ends == "signed out everywhere":
            await revoke_sessions(work.session, member.id, work.now)
        else:
            (row,) = (
                await work.session.scalars(
                    select(DeviceSignIn).where(DeviceSignIn.used_at.is_(None))
                )
            ).all()
            await revoke_sessions(work.session, member.id, work.now, session_id=row.session_id)

    assert await device.poll() == (400, "access_denied")
    assert await world.audit(event="device_sign_in_succeeded") == []


async def test_a_device_may_do_what_its_member_may_and_no_more(world: World):
    device = await ask(world)
    await decide(world, device.user_code, name="auditor")
    _, token = await device.poll()
    headers = {"authorization": f"Bearer {token}"}
    client = world.app.test_client(use_cookies=False)

    async def status_of(path: str) -> int:
        return (await client.get(path, headers=headers)).status_code

    assert await status_of("/api/v1/admin/orgs/acme/audit") == 200
    assert await status_of(bindings_path()) == 403
    assert await status_of("/api/v1/admin/orgs/other/audit") == 403
    assert await status_of("/admin/ui/profile") == 401


async def test_an_approval_proves_nothing_anew(world: World):
    """A stolen session must not stay recent by approving one after the other."""
    asked_for = {"name": "ci", "scopes": ["audit:r"]}
    world.clock.advance(seconds=599)
    device = await ask(world)
    await decide(world, device.user_code)
    headers = {"authorization": f"Bearer {(await device.poll())[1]}"}
    client = world.app.test_client(use_cookies=False)

    recent = await client.post(KEYS, headers=headers, json=asked_for)
    world.clock.advance(seconds=1)
    later = await client.post(KEYS, headers=headers, json=asked_for)

    assert (recent.status_code, later.status_code) == (201, 403)


async def test_signing_out_ends_the_session_and_is_recorded_once(world: World):
    device = await ask(world)
    await decide(world, device.user_code)
    _, token = await device.poll()
    headers = {"authorization": f"Bearer {token}"}

    ended = await world.client.delete(OWN_SESSION, headers=headers)

    assert ended.status_code == 200
    assert (await own_session(world, token))[0] == 401
    assert (await world.client.delete(OWN_SESSION, headers=headers)).status_code == 401
    (row,) = await world.audit(event="signed_out")
    assert {"revoked": row["payload"]["session_id"]} == await ended.get_json()


async def test_only_sessions_can_be_ended(world: World):
    assert (await world.client.delete(OWN_SESSION, headers=world.admin)).status_code == 401
    foreign = world.session("owner") | {"origin": "https://evil.example"}
    assert (await world.client.delete(OWN_SESSION, headers=foreign)).status_code == 403
    assert (await own_session(world, world.cookies["owner"]))[0] == 200


async def test_the_page_wants_a_member_and_leads_through_sign_in(world: World):
    client = world.app.test_client(use_cookies=False)
    answer = await client.get("/device", headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/admin/ui/sign-in?next=/device"

    for path in ("/device", "/device/decision"):
        answer = await client.post(path, form={"code": "WDJB-MJHT"}, headers=world.admin)
        assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/device", "/device/decision"])
async def test_forms_of_other_sites_and_sessions_are_refused(world: World, path: str):
    """Another site must not make a member's browser approve a device."""
    device = await ask(world)
    form = {"code": device.user_code, "decision": "approve"}
    at = browser(world)

    assert (await at.post(path, {"origin": "https://evil.example"}, **form)).status_code == 403
    assert (await at.post(path, {}, **form)).status_code == 403
    assert (await at.post(path, **form)).status_code == 403
    assert (await at.post(path, **form, csrf="0" * 64)).status_code == 403
    assert await device.poll() == (400, "authorization_pending")


@pytest.mark.parametrize(
    ("form", "refusal"),
    [
        ({}, "invalid_request"),
        ({"client_id": ""}, "invalid_request"),
        ({"client_id": "another"}, "invalid_client"),
    ],
)
async def test_a_device_must_say_who_it_is(world: World, form: dict[str, str], refusal: str):
    assert await send(world, CODE, **form) == (400, {"error": refusal})
    async with world.services.store.read() as session:
        assert await session.scalar(select(func.count()).select_from(DeviceSignIn)) == 0


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": ""}, "invalid_request"),
        ({"device_code": ""}, "invalid_request"),
        ({"device_code": "x" * 201}, "invalid_request"),
        ({"device_code": "x"}, "invalid_grant"),
        ({"client_id": "another"}, "invalid_client"),
    ],
)
async def test_a_wrong_poll_is_refused_by_its_code(world: World, changes, refusal):
    """As RFC 6749 (5.2) names it."""
    form = {"grant_type": GRANT_TYPE, "device_code": "x", "client_id": CLIENT_ID} | changes

    assert await send(world, TOKEN, **form) == (400, {"error": refusal})


async def test_only_forms_are_read(world: World):
    json = await world.client.post(CODE, json={"client_id": CLIENT_ID})
    twice = await world.client.post(
        CODE,
        data=f"client_id={CLIENT_ID}&client_id={CLIENT_ID}",
        headers={"content-type": "application/x-www-form-urlencoded"},
    )

    assert (json.status_code, twice.status_code) == (415, 400)


async def test_neither_code_is_stored(world: World):
    """A stolen database holds none to type or to poll with."""
    device = await ask(world)
    await decide(world, device.user_code)
    _, token = await device.poll()
    stored = stored_bytes(world.services.settings.data_dir)

    for secret in (device.device_code, device.user_code, token):
        assert secret.encode() not in stored
        assert secret.replace("-", "").encode() not in stored


async def test_guesses_and_requests_are_limited(world: World):
    statuses = [(await send(world, CODE, client_id=CLIENT_ID))[0] for _ in range(PER_ADDRESS_MAX)]
    assert set(statuses) == {200}
    assert (await send(world, CODE, client_id=CLIENT_ID))[0] == 429

    world.clock.advance(minutes=1)
    at = browser(world)
    csrf = CSRF.search(await (await at.get("/device")).get_data(as_text=True))[1]
    statuses = [
        (await at.post("/device", code=new_user_code(), csrf=csrf)).status_code
        for _ in range(PER_ADDRESS_MAX)
    ]
    assert set(statuses) == {400}
    assert (await at.post("/device", code=new_user_code(), csrf=csrf)).status_code == 429


async def test_waiting_sign_ins_are_bounded(world: World, monkeypatch):
    """The more of them wait, the likelier a guess hits one."""
    monkeypatch.setattr(device_sign_in, "PENDING_MAX", 2)
    for _ in range(2):
        await ask(world)

    assert (await send(world, CODE, client_id=CLIENT_ID))[0] == 429
    world.clock.advance(minutes=10)
    await ask(world)


@pytest.mark.parametrize("typed", ["wdjbmjht", " WDJB MJHT ", "WDJB-MJHT", "w-d-j-b-m-j-h-t"])
def test_a_code_is_understood_however_it_is_typed(typed: str):
    """People read it off another screen."""
    assert parse_user_code(typed) == "WDJB-MJHT"


@pytest.mark.parametrize("typed", ["", "WDJB", "WDJB-MJHTX", "ADJB-MJHT", "WDJB-MJH0", "ẄDJB-MJHT"])
def test_what_cannot_be_a_code_is_none(typed: str):
    assert parse_user_code(typed) is None


def test_codes_have_letters_that_cannot_be_mistaken():
    """No vowels, so no words; no digits, so no 0 for O."""
    assert not set("AEIOU01258") & set(ALPHABET)
    assert {parse_user_code(new_user_code()) is None for _ in range(100)} == {False}
