"""The members page: who is in the organisation, invited, changed, let in, put out."""

import pytest

from service.orgs.domains import set_domain
from service.orgs.members import add_member
from tests.conftest import BY_OPERATOR, World, grant
from tests.service.access.passkeys.holders import Holder
from tests.service.pages.page import ORG, OWN_PAGE, send_form, shown
from tests.service.pages.people.desk import actor, chosen, get, leads_to, logged, post, see

INVITE = f"{ORG}/members"


async def invite(world: World, **fields: str):
    page = await see(world, "members")
    typed = {"email": "new@acme.example", "idp": "google", "role": "auditor"}
    return await send_form(world, page, INVITE, **typed | fields)


def of(world: World, who: str, what: str) -> str:
    """Where the form goes that does `what` about the member."""
    return f"{ORG}/members/{world.members[who].id}/{what}"


async def test_everyone_is_listed_with_what_is_known_of_them(world):
    page = await see(world, "members")
    rows = {row.attributes["id"]: row.text for row in page.all("tr") if "id" in row.attributes}
    own, team_admin = (rows[world.members[who].id] for who in ("owner", "team_admin"))

    assert len(rows) == 5
    assert "stranger" not in page.one("main").text
    assert "owner@acme.example" in own
    assert "you" in own
    assert "GitHub" in own
    assert "invited" in own
    assert "platform" in team_admin
    assert chosen(page, f"{world.members['auditor'].id}-role") == ["auditor"]


async def test_passkeys_are_seen_and_removed(world):
    """They outlive the sessions that they were added in."""
    holder = Holder(world).with_session_of("auditor")
    assert (await holder.register()).status_code < 400
    page = await see(world, "members")

    assert "1 passkey" in page.one("tr", id=world.members["auditor"].id).text
    assert "passkey" not in page.one("tr", id=world.members["member"].id).text
    answer = await send_form(world, page, of(world, "auditor", "remove-passkeys"))
    assert leads_to(answer) == f"{ORG}/members?done=no-passkeys"
    row = ("passkey_removed", actor(world, "owner"), world.members["auditor"].id)
    assert (await logged(world))[0] == row
    page = await see(world, "members")
    assert "passkey" not in page.one("tr", id=world.members["auditor"].id).text


async def test_an_invitation_makes_a_member_and_one_row(world):
    page = await see(world, leads_to(await invite(world)).removeprefix(f"{ORG}/"))
    event, by, subject = (await logged(world))[0]

    assert "Invited." in page.one("p", role="status").text
    assert (event, by) == ("member_added", actor(world, "owner"))
    assert "new@acme.example" in page.one("tr", id=subject).text


async def test_a_sign_in_link_is_shown_once_and_works(world, capfd, caplog):
    page = await see(world, "members")
    answer = await send_form(world, page, of(world, "auditor", "link"))
    page = await shown(answer)
    link = page.one("input", id="sign-in-link").attributes["value"]
    token = link.partition("?token=")[2]

    assert answer.headers["cache-control"] == "no-store"
    assert link.startswith("http://localhost:8080/sign-in?token=")
    assert (
        "within 10 minutes"
        in page.one("section", **{"aria-labelledby": "issued-secret-title"}).text
    )
    assert token not in (await see(world, "members")).html
    assert (await logged(world))[0][:2] == ("session_issued", actor(world, "owner"))
    assert token not in str(await world.audit())
    assert token not in "".join(capfd.readouterr()) + caplog.text
    used = await world.client.post("/sign-in", form={"token": token}, headers=OWN_PAGE)
    assert used.status_code == 303
    assert (await logged(world))[0][:2] == ("link_sign_in_succeeded", actor(world, "auditor"))


async def test_the_same_form_makes_no_second_link(world):
    """Reloading the answer sends the form again."""
    page = await see(world, "members")
    await send_form(world, page, of(world, "auditor", "link"))
    before = await logged(world)
    page = await shown(await send_form(world, page, of(world, "auditor", "link")), 409)

    assert "This form was already submitted" in page.one("div", role="alert").text
    assert not page.all("input", id="sign-in-link")
    assert await logged(world) == before


async def test_long_lists_are_paged_and_searched(world, monkeypatch):
    async with world.services.store.write() as work:
        for number in range(60):
            await add_member(
                work, world.acme, f"p{number:02}@Many_.example", "member", "google", BY_OPERATOR
            )
    first = await see(world, "members?find=MANY_")
    second = await see(world, first.link("More members").removeprefix(f"{ORG}/"))
    rows = [
        [row.text.split()[0] for row in page.all("tr") if "id" in row.attributes]
        for page in (first, second)
    ]

    assert [len(shown_rows) for shown_rows in rows] == [50, 10]
    assert rows[0] + rows[1] == [f"p{number:02}@Many_.example" for number in range(60)]
    action = next(form for form in second.forms if "/role?" in form)
    answer = await send_form(world, second, action, role="auditor")
    assert "after=p49" in leads_to(answer)
    unmatched = await see(world, "members?find=%25")
    assert "No member’s address contains this." in unmatched.one("main").text


async def test_domains_are_shown_and_changed_by_the_operator_alone(world):
    """Their owner cannot be verified here."""
    async with world.services.store.write() as work:
        await set_domain(work, world.acme, "acme.example", "google", BY_OPERATOR, is_allowed=True)
    page = await see(world, "members")
    section = page.one("section", **{"aria-labelledby": "domains-title"})

    assert "acme.example, with Google" in section.text
    assert "countersign org allow-domain acme" in section.text
    assert not [action for action in page.forms if "domain" in action]


async def test_forms_about_a_role_beyond_ones_own_are_not_offered(world):
    """The API refuses them."""
    await grant(world, "auditor", "org:admin")
    offered = await see(world, "members", "auditor")
    out_of_reach = [world.members[whom].id for whom in ("owner", "admin")]

    assert not [form for form in offered.forms if any(who in form for who in out_of_reach)]
    assert {one.attributes["value"] for one in offered.all("option")} & {"owner", "admin"} == set()
    assert any(world.members["member"].id in form for form in offered.forms)


@pytest.mark.parametrize("name", ["find", "after"])
async def test_a_place_in_the_list_is_no_longer_than_an_address(world, name):
    """It stands in every form: an address of 60 kB made a page of 36 MB, or a query too complex."""
    for length, status in ((255, 200), (256, 400), (60_000, 400)):
        response = await get(world, f"members?{name}={'!' * length}")
        assert response.status_code == status

    form = {"email": "new@acme.example", "idp": "google", "role": "auditor"}
    page = await see(world, "members")
    refused = await world.client.post(
        f"{INVITE}?{name}={'!' * 256}",
        form=page.forms[INVITE] | form,
        headers=world.session("owner") | OWN_PAGE,
    )
    assert refused.status_code == 400
    assert await world.audit(event="member_added", subject="new@acme.example") == []
    assert "new@acme.example" not in (await see(world, "members")).html


async def test_all_errors_are_shown_of_a_form_without_its_fields(world):
    page = await shown(await post(world, "members"), 400)

    assert "Email must look like ada@example.com" in page.html
    assert "Idp must be one of github, google, microsoft" in page.html
