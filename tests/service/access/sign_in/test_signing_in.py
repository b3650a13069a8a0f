"""Signing in with an identity provider: who gets in, as whom, and what is remembered of it."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from service.core.header_names import SESSION_COOKIE
from service.orgs.members import remove_member
from service.store.tables import Member
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, bindings_path
from tests.service.access.sign_in.visitors import ADA, SIGN_IN, Visitor, told
from tests.sign_in.fixtures import PROVIDERS

OVERVIEW = "/admin/ui/orgs/acme"
AUDIT = f"{OVERVIEW}/audit"


NOT_KNOWN = "No organisation accepts this account"


async def remove(visitor: Visitor, member: Member) -> None:
    async with visitor.world.services.store.write() as work:
        present = await work.session.get_one(Member, member.id)
        await remove_member(work, visitor.world.acme, present, BY_OPERATOR)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_invited_person_signs_in(visitor: Visitor, name: str) -> None:
    member = await visitor.invite(idp=name)

    answer = await visitor.sign_in(name)

    assert answer.status_code == 303
    assert answer.headers["location"] == OVERVIEW
    assert (await visitor.get(OVERVIEW)).status_code == 200
    row = (await visitor.world.audit(event="oauth_login_succeeded"))[0]
    assert row["payload"] == {"member_id": member.id, "is_new_member": True, "provider": name}
    assert (row["actor"], row["actor_source"]) == (f"{name}:{member.id}", "session")
    assert (row["subject"], row["verdict_source"]) == (member.id, "dashboard")
    assert row["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_second_time_the_account_alone_counts(visitor: Visitor, name: str) -> None:
    """Addresses change and change hands; the subject does neither."""
    member = await visitor.invite(idp=name)
    await visitor.sign_in(name)
    visitor.idp.be(email="ada@elsewhere.example", is_verified=False)

    assert (await visitor.sign_in(name)).status_code == 303

    rows = await visitor.world.audit(event="oauth_login_succeeded")
    assert [row["payload"]["is_new_member"] for row in rows] == [False, True]
    assert {row["subject"] for row in rows} == {member.id}


@pytest.mark.parametrize("name", PROVIDERS)
async def test_what_the_provider_is_asked(visitor: Visitor, name: str) -> None:
    first, second = [
        {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
        for url in [await visitor.start(name), await visitor.start(name)]
    ]

    assert first["response_type"] == "code"
    assert first["redirect_uri"] == f"http://localhost:8080{SIGN_IN}/{name}/callback"
    assert first["code_challenge_method"] == "S256"
    secret = {"state", "code_challenge"} | ({"nonce"} if name != "github" else set())
    assert {key for key in first if first[key] != second[key]} == secret
    assert all(re.fullmatch(r"[\w-]{43}", first[key], re.ASCII) for key in secret)


async def test_the_cookie_of_a_sign_in_is_out_of_reach_and_goes_away(visitor: Visitor) -> None:
    started = await visitor.get(f"{SIGN_IN}/google")

    assert {"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"} <= set(
        started.headers["set-cookie"].split("; ")
    )
    await visitor.invite()
    await visitor.sign_in()
    assert list(visitor.cookies) == [SESSION_COOKIE]


@pytest.mark.parametrize("is_live", [False, True])
async def test_signing_in_gives_a_new_session(visitor: Visitor, is_live: bool) -> None:
    await visitor.invite()
    planted = visitor.world.cookies["stranger"] if is_live else "planted"
    visitor.cookies[SESSION_COOKIE] = planted

    await visitor.sign_in()

    assert re.fullmatch(r"csess_[\w-]{43}", visitor.cookies[SESSION_COOKIE], re.ASCII)
    assert visitor.cookies[SESSION_COOKIE] != planted
    visitor.cookies[SESSION_COOKIE] = planted
    assert (await visitor.get(AUDIT)).status_code == (403 if is_live else 401)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_unverified_address_takes_up_no_invitation(visitor: Visitor, name: str) -> None:
    """Anyone can write any address into their account."""
    member = await visitor.invite(idp=name)
    visitor.idp.be(is_verified=False)

    answer = await visitor.sign_in(name)

    assert "No organisation accepts this account" in await told(answer, 403)
    assert SESSION_COOKIE not in visitor.cookies
    (row,) = await visitor.failures()
    assert row["payload"] == {
        "method": "oauth",
        "reason": "the provider has not verified the address",
    }
    assert (row["subject"], row["actor"]) == (member.id, "system:sign-in")


async def test_an_unknown_person_gets_in_nowhere(visitor: Visitor) -> None:
    """And no organisation's log can be filled by accounts that have nothing to do with it."""
    before = await visitor.world.audit(), await visitor.world.audit("other")

    answer = await visitor.sign_in()

    assert "ask an owner to add you" in await told(answer, 403)
    assert (await visitor.world.audit(), await visitor.world.audit("other")) == before


@pytest.mark.parametrize("name", PROVIDERS)
async def test_another_account_with_the_same_address_is_another_person(
    visitor: Visitor, name: str
) -> None:
    """Control of an address is not control of the member."""
    member = await visitor.invite(idp=name)
    await visitor.allow_domain(idp=name)
    await visitor.sign_in(name)
    visitor.cookies.clear()
    visitor.idp.be(subject="666")

    await told(await visitor.sign_in(name), 403)

    (row,) = await visitor.failures()
    assert row["payload"]["reason"] == "another account is linked to the member with this address"
    assert (row["subject"], row["actor"]) == (member.id, "system:sign-in")


async def test_an_invitation_is_for_one_provider(visitor: Visitor) -> None:
    """An owner who invites a Google account has not invited the holder of the address at GitHub."""
    await visitor.invite(idp="github")

    assert NOT_KNOWN in await told(await visitor.sign_in("google"), 403)
    assert SESSION_COOKIE not in visitor.cookies


@pytest.mark.parametrize(
    ("invited", "has_way"),
    [("Ada@Acme.example", True), ("ADA@ACME.EXAMPLE", True), ("ad\u0101@acme.example", False)],
)
async def test_an_address_is_compared_without_case(
    visitor: Visitor, invited: str, has_way: bool
) -> None:
    """As mail does; a letter that only looks alike is another mailbox."""
    await visitor.invite(email=invited)

    assert (await visitor.sign_in()).status_code == (303 if has_way else 403)


async def test_letters_that_fold_to_ascii_are_other_letters(visitor: Visitor) -> None:
    """The Kelvin sign becomes a k in lower case; the mailbox is a stranger's."""
    await visitor.invite(email="kim@acme.example")
    visitor.idp.be(email="\u212aim@acme.example")

    assert NOT_KNOWN in await told(await visitor.sign_in(), 403)
    assert SESSION_COOKIE not in visitor.cookies


async def test_a_removed_member_stays_out(visitor: Visitor) -> None:
    member = await visitor.invite()
    await visitor.allow_domain()
    await visitor.sign_in()
    await remove(visitor, member)
    visitor.cookies.clear()

    await told(await visitor.sign_in(), 403)

    (row,) = await visitor.failures()
    assert row["payload"]["reason"] == "the member was removed"
    assert (row["subject"], row["actor"]) == (member.id, f"google:{member.id}")


async def test_who_was_removed_before_signing_in_stays_out_too(visitor: Visitor) -> None:
    await remove(visitor, await visitor.invite())
    await visitor.allow_domain()

    assert NOT_KNOWN in await told(await visitor.sign_in(), 403)
    assert SESSION_COOKIE not in visitor.cookies


async def test_a_removed_member_who_is_invited_again_comes_back(visitor: Visitor) -> None:
    """As a new member: the old one's rows stay the old one's."""
    first = await visitor.invite()
    await visitor.sign_in()
    await remove(visitor, first)
    second = await visitor.invite()

    assert (await visitor.sign_in()).status_code == 303

    assert (await visitor.world.audit(event="oauth_login_succeeded"))[0]["subject"] == second.id


@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_people_of_an_allowed_domain_become_members(visitor: Visitor, name: str) -> None:
    await visitor.allow_domain(idp=name)

    answer = await visitor.sign_in(name)

    assert answer.status_code == 303
    signed_in, added = (await visitor.world.audit())[:2]
    assert signed_in["payload"]["is_new_member"] is True
    assert added["event"] == "member_added"
    assert added["payload"] == {
        "member_id": signed_in["subject"],
        "email": ADA,
        "role": "member",
        "identity_provider": name,
    }
    assert added["actor"] == "system:sign-in"
    assert (await visitor.get(bindings_path())).status_code == 403


@pytest.mark.parametrize(
    "state",
    [
        {"is_verified": False},
        {"email": "ada@evil.example"},
        {"email": "ada@sub.acme.example"},
        {"email": "ada@acme.example.evil.example"},
        {"email": None},
        {"without_claims": ["hd"]},
    ],
    ids=str,
)
async def test_no_one_else_becomes_a_member(visitor: Visitor, state: dict) -> None:
    """The address must be verified, of the very domain, and at Google run by its Workspace."""
    await visitor.allow_domain()
    visitor.idp.be(**state)

    assert NOT_KNOWN in await told(await visitor.sign_in(), 403)
    assert SESSION_COOKIE not in visitor.cookies


async def test_a_domain_is_allowed_for_one_provider(visitor: Visitor) -> None:
    """GitHub's word for an address is not Google's."""
    await visitor.allow_domain(idp="github")

    assert NOT_KNOWN in await told(await visitor.sign_in("google"), 403)
    assert SESSION_COOKIE not in visitor.cookies


async def test_who_may_enter_several_organisations_chooses(visitor: Visitor) -> None:
    await visitor.invite()
    elsewhere = await visitor.invite(slug="other", role="owner")

    answer = await visitor.sign_in()
    assert answer.headers["location"] == f"{SIGN_IN}/choose"
    page = await (await visitor.get(f"{SIGN_IN}/choose")).get_data(as_text=True)
    assert SESSION_COOKIE not in visitor.cookies
    assert re.findall(r'name="org" value="(\w+)"', page) == ["acme", "other"]

    answer = await visitor.post(f"{SIGN_IN}/choose", org="other", csrf=csrf_in(page))

    assert answer.status_code == 303
    assert answer.headers["location"] == "/admin/ui/orgs/other"
    assert (await visitor.world.audit("other"))[0]["subject"] == elsewhere.id
    assert await visitor.world.audit(event="oauth_login_succeeded") == []
    assert list(visitor.cookies) == [SESSION_COOKIE]


def csrf_in(page: str) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', page)
    assert found is not None
    return found[1]


class TestTheChoice:
    async def page(self, visitor: Visitor) -> str:
        """The page of a person who may enter both organisations."""
        await visitor.invite()
        await visitor.invite(slug="other")
        await visitor.sign_in()
        return await (await visitor.get(f"{SIGN_IN}/choose")).get_data(as_text=True)

    async def test_it_is_made_once(self, visitor: Visitor) -> None:
        page = await self.page(visitor)
        copied = dict(visitor.cookies)
        form = {"org": "acme", "csrf": csrf_in(page)}
        assert (await visitor.post(f"{SIGN_IN}/choose", **form)).status_code == 303

        visitor.cookies = copied

        await told(await visitor.post(f"{SIGN_IN}/choose", **form), 400)

    async def test_it_ends_after_ten_minutes(self, visitor: Visitor) -> None:
        """Another person may sit at the screen by then."""
        page = await self.page(visitor)
        visitor.world.clock.advance(minutes=10)

        answer = await visitor.post(f"{SIGN_IN}/choose", org="acme", csrf=csrf_in(page))

        await told(answer, 400)
        assert SESSION_COOKIE not in visitor.cookies

    async def test_an_organisation_beyond_it_cannot_be_chosen(self, visitor: Visitor) -> None:
        page = await self.page(visitor)
        answer = await visitor.post(f"{SIGN_IN}/choose", org="third", csrf=csrf_in(page))

        await told(answer, 403)
        assert SESSION_COOKIE not in visitor.cookies

    @pytest.mark.parametrize(
        ("headers", "token"),
        [({"origin": "https://evil.example"}, None), ({}, None), (None, "wrong"), (None, "")],
        ids=str,
    )
    async def test_another_site_cannot_make_it(
        self, visitor: Visitor, headers: dict[str, str] | None, token: str | None
    ) -> None:
        page = await self.page(visitor)
        more = {} if headers is None else {"headers": headers}

        answer = await visitor.post(
            f"{SIGN_IN}/choose",
            org="acme",
            csrf=token if token is not None else csrf_in(page),
            **more,
        )

        assert answer.status_code == 403
        assert SESSION_COOKIE not in visitor.cookies

    async def test_a_member_who_is_removed_meanwhile_is_not_let_in(self, visitor: Visitor) -> None:
        member = await visitor.invite()
        await visitor.invite(slug="other")
        await visitor.sign_in()
        page = await (await visitor.get(f"{SIGN_IN}/choose")).get_data(as_text=True)
        await remove(visitor, member)

        answer = await visitor.post(f"{SIGN_IN}/choose", org="acme", csrf=csrf_in(page))

        await told(answer, 403)
        assert SESSION_COOKIE not in visitor.cookies


@sample(6)
@pytest.mark.parametrize(
    ("given", "lands"),
    [
        (AUDIT, None),
        (f"{AUDIT}?event=blocklist_hit&package=%40acme%2Fui", None),
        ("/admin/ui/orgs/acme/bindings", None),
        ("/admin/ui/orgs/other/audit", OVERVIEW),
        ("https://evil.example/admin/ui/orgs/acme/audit", OVERVIEW),
        ("//evil.example/admin/ui/orgs/acme/audit", OVERVIEW),
        ("/\\evil.example", OVERVIEW),
        ("/admin/ui/orgs/acme/../../../../evil", OVERVIEW),
        ("/admin/ui/orgs/acme/%2e%2e/x", OVERVIEW),
        ("/admin/ui/orgs/acme//evil.example", OVERVIEW),
        ("/admin/ui/orgs/acme/audit\r\nset-cookie: a=b", OVERVIEW),
        ("/admin/ui/orgs/acme/audit\n", OVERVIEW),
        ("javascript:alert(1)", OVERVIEW),
        ("/sign-out", OVERVIEW),
        ("/admin/ui/orgs/acme/" + "a" * 2000, OVERVIEW),
        ("", OVERVIEW),
    ],
)
async def test_after_signing_in_a_member_lands_on_a_page_of_their_own(
    visitor: Visitor, given: str, lands: str | None
) -> None:
    """`next` is what a link said, and anyone can write links."""
    await visitor.invite()

    answer = await visitor.sign_in(next=given)

    assert answer.headers["location"] == (lands or given)
