"""Requests that another site made a member's browser send."""

from typing import Any

import pytest
from sqlalchemy import select

from service.access.cross_site import csrf_token
from service.orgs.members import issue_sign_in
from service.store.tables import Session
from tests.conftest import BY_OPERATOR, World, bindings_path, refused

OWN = "http://localhost:8080"
REFUSED = (403, "cross-site request refused")
ANOTHERS = (403, "this form belongs to another session: reload its page and send it again")

FOREIGN: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "https://localhost:8080"},
    {"origin": "http://localhost"},
    {"origin": "http://localhost:8081"},
    {"origin": "http://localhost:8080.evil.example"},
    {"origin": "http://sub.localhost:8080"},
    {"origin": f"{OWN}/"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": ""},
    {"origin": OWN, "sec-fetch-site": "cross-site"},
    {"origin": OWN, "sec-fetch-site": "same-site"},
    {"origin": "null", "sec-fetch-site": "same-origin"},
]
"""Headers of a browser that acts for another site, or does not say for which."""

OURS: list[dict[str, str]] = [
    {"origin": OWN},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
    {"origin": OWN, "sec-fetch-site": "same-origin"},
]
"""Headers of a browser that acts for one of our own pages, or for the person at the keyboard."""


class TestTheApi:
    @pytest.mark.parametrize("headers", [{}, *OURS], ids=str)
    async def test_changes_by_cookie_are_for_our_own_pages_and_for_scripts(
        self, world: World, headers: dict[str, str]
    ):
        """A script sends neither header; every current browser sends one of them."""
        session = world.session("owner") | headers
        created = await world.create(headers=session)
        assert created.status_code == 201

        path = bindings_path("acme", (await created.get_json())["id"])
        assert (await world.client.delete(path, headers=session)).status_code == 200

    @pytest.mark.parametrize("headers", FOREIGN, ids=str)
    async def test_another_sites_changes_are_refused(self, world: World, headers: dict[str, str]):
        """The cookie is sent whichever site made the browser send the request."""
        created = await (await world.create()).get_json()
        before = await world.audit()
        session = world.session("owner") | headers

        path = bindings_path("acme", created["id"])
        answers = [
            await world.create(headers=session, repository_id="5"),
            await world.client.delete(path, headers=session),
        ]

        assert [await refused(answer) for answer in answers] == [REFUSED, REFUSED]
        assert [binding["revokedAt"] for binding in await world.bindings()] == [None]
        assert await world.audit() == before

    async def test_another_sites_requests_keep_no_session_alive(self, world: World):
        """Otherwise a page left open anywhere could keep a member signed in."""
        world.clock.advance(hours=1)
        foreign = world.session("owner") | FOREIGN[0]
        assert await refused(await world.create(headers=foreign)) == REFUSED

        async with world.services.store.read() as session:
            own = Session.member_id == world.members["owner"].id
            seen_at = await session.scalar(select(Session.last_seen_at).where(own))
        assert seen_at < world.clock.now

    @pytest.mark.parametrize("headers", FOREIGN, ids=str)
    @pytest.mark.asyncio(loop_scope="module")
    async def test_reading_is_not_a_change(self, shared_world: World, headers: dict[str, str]):
        """The other site's script never sees the answer: no CORS header lets it."""
        answer = await shared_world.client.get(
            bindings_path(), headers=shared_world.session("owner") | headers
        )

        assert answer.status_code == 200
        assert not [
            name for name, _ in answer.headers.items() if name.lower().startswith("access-")
        ]

    @pytest.mark.parametrize("headers", FOREIGN, ids=str)
    async def test_the_admin_token_is_not_subject_to_it(
        self, world: World, headers: dict[str, str]
    ):
        """No browser sends its header by itself."""
        assert (await world.create(headers=world.admin | headers)).status_code == 201


class TestForms:
    async def sign_in_form(self, world: World) -> dict[str, str]:
        """The fields of the sign-in form that a fresh link opens."""
        async with world.services.store.write() as work:
            token = await issue_sign_in(work, world.acme, world.members["owner"], BY_OPERATOR)
        return {"token": token}

    async def sign_out_form(self, world: World) -> dict[str, str]:
        """The fields of the owner's sign-out form."""
        async with world.services.store.read() as session:
            session_id = await session.scalar(
                select(Session.id).where(Session.member_id == world.members["owner"].id)
            )
        return {"csrf": csrf_token(world.services.settings.secret_key, session_id)}

    async def is_signed_in(self, world: World) -> bool:
        """True while the owner's session works."""
        answer = await world.client.get(bindings_path(), headers=world.session("owner"))
        return answer.status_code == 200

    @pytest.mark.parametrize("headers", OURS, ids=str)
    async def test_forms_of_our_own_pages_are_taken(self, world: World, headers: dict[str, str]):
        signed_in = await world.client.post(
            "/sign-in", headers=headers, form=await self.sign_in_form(world)
        )
        assert signed_in.status_code == 303

        signed_out = await world.client.post(
            "/sign-out",
            headers=headers | world.session("owner"),
            form=await self.sign_out_form(world),
        )
        assert signed_out.status_code == 303
        assert not await self.is_signed_in(world)

    @pytest.mark.parametrize("headers", [{}, *FOREIGN], ids=str)
    async def test_other_forms_are_refused_also_without_either_header(
        self, world: World, headers: dict[str, str]
    ):
        """Only browsers send forms; one that says nothing of where it comes from is not trusted."""
        form = await self.sign_in_form(world)
        signed_in = await world.client.post("/sign-in", headers=headers, form=form)
        signed_out = await world.client.post(
            "/sign-out",
            headers=headers | world.session("owner"),
            form=await self.sign_out_form(world),
        )

        assert await refused(signed_in) == REFUSED
        assert await refused(signed_out) == REFUSED
        assert await self.is_signed_in(world)
        again = await world.client.post("/sign-in", headers={"origin": OWN}, form=form)
        assert again.status_code == 303, "the refused form must not use up the link"

    @pytest.mark.parametrize(
        "form",
        [{}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "é"}, {"csrf": "another session's"}],
        ids=str,
    )
    async def test_a_sign_out_carries_its_sessions_own_token(
        self, world: World, form: dict[str, Any]
    ):
        """A page of the same origin that another person wrote must not act."""
        if form == {"csrf": "another session's"}:
            form = {"csrf": csrf_token(world.services.settings.secret_key, "sess_other")}

        answer = await world.client.post(
            "/sign-out", headers={"origin": OWN} | world.session("owner"), form=form
        )

        assert await refused(answer) == ANOTHERS
        assert await self.is_signed_in(world)
