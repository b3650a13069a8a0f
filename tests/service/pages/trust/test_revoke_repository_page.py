"""The page that revokes all bindings of a repository: at most three actions, with a list first."""

from service.access.callers import cli_caller
from service.trust.bindings.changes import add_binding
from service.trust.bindings.listing import PAGE_ROWS
from tests.conftest import ISSUER, World, binding_body, grant
from tests.service.pages.page import ORG, OWN_PAGE, press, shown
from tests.service.pages.trust.pages import BINDINGS, HOSTILE, cells, see

PATH = f"{BINDINGS}/revoke"
MANY = PAGE_ROWS + 20
OF_42 = f"{PATH}?issuer={ISSUER}&repository_id=42"


async def bound(world: World, *names: str) -> list[str]:
    """The ids of new bindings of repository 42."""
    return [await world.bind(sub_pattern=f"repo:acme/{name}", repository_id="42") for name in names]


async def test_three_actions_from_the_list_to_a_revoked_repository(world: World):
    ours = await bound(world, "a", "b")
    await world.bind(repository_id="43")
    binding = await see(world, f"{BINDINGS}/{ours[0]}")
    page = await see(world, binding.link("Revoke repository 42…"))
    assert "2 active bindings of repository 42" in page.one("main").text

    answer = await press(world, page.html, "Revoke all 2 bindings permanently", reason="key leaked")

    assert answer.status_code == 303
    revoked = await world.bindings(state="revoked")
    assert {each["id"] for each in revoked} == set(ours)
    assert {each["revokedReason"] for each in revoked} == {"key leaked"}
    after = await see(world, answer.headers["location"])
    assert after.one("p", role="status").text.startswith("The repository is revoked")
    assert all(one in after.html for one in ours)
    rows = await world.audit(event="oidc_binding_revoked")
    assert len(rows) == 2
    assert len({row["request_id"] for row in rows}) == 1


async def test_a_repository_is_found_by_its_name(world: World):
    """By its path or the last part of it, in any case; people know no numbers."""
    await world.bind(sub_pattern="repo:acme/Storefront:ref:refs/heads/main", repository_id="42")
    await world.bind(sub_pattern="repo:acme/other:ref:refs/heads/main", repository_id="43")
    for name in ("acme/storefront", "Storefront", "42"):
        page = await see(world, f"{PATH}?issuer={ISSUER}&repository_id={name}")
        assert "1 active binding of repository" in page.one("main").text
        assert page.values("repository_id") == ["42"]


async def test_a_name_that_several_repositories_have_is_not_guessed(world: World):
    await world.bind(sub_pattern="repo:acme/app:x", repository_id="1")
    await world.bind(sub_pattern="repo:other/app:x", repository_id="2")
    owner = world.session("owner")
    for name, status, said in (
        ("app", 400, "2 repositories have this name: type one of"),
        ("none", 400, "repository_id must be a positive integer string"),
    ):
        answer = await world.client.get(
            f"{PATH}?issuer={ISSUER}&repository_id={name}", headers=owner
        )
        assert said in (await shown(answer, status)).html


async def test_the_form_asks_for_issuer_and_repository(world: World):
    """Two issuers may use the same number."""
    await bound(world, "a")
    start = await see(world, BINDINGS)
    page = await see(world, start.link("Revoke a repository"))
    assert [one.attributes["name"] for one in page.all("select")] == ["issuer"]

    missing = await shown(
        await world.client.get(
            f"{PATH}?issuer={ISSUER}&repository_id=", headers=world.session("owner") | OWN_PAGE
        ),
        400,
    )
    assert missing.one("p", id="hint-find-repository_id").text.startswith("repository_id is")
    elsewhere = await shown(
        await world.client.get(
            f"{PATH}?issuer=https://gitlab.com&repository_id=42",
            headers=world.session("owner") | OWN_PAGE,
        ),
        404,
    )
    text = "no active binding of repository 42 of https://gitlab.com"
    assert text in elsewhere.one("div", role="alert").text


async def test_a_binding_added_meanwhile_is_shown_before_it_is_revoked(world: World):
    (first,) = await bound(world, "a")
    page = await see(world, OF_42)
    await bound(world, "b")

    again = await shown(
        await press(world, page.html, "Revoke the binding permanently", reason="leaked"), 409
    )

    assert "changed concurrently" in again.one("div", role="alert").text
    assert "2 active bindings" in again.one("main").text
    assert again.values("reason") == ["leaked"]
    assert len(await world.bindings(state="active")) == 2
    await press(world, again.html, "Revoke all 2 bindings permanently")
    assert await world.bindings(state="active") == []
    assert first


async def test_more_bindings_than_a_page_shows_are_all_confirmed_and_revoked(world: World):
    """The form names them by one digest: it stays small, however many there are."""
    async with world.services.store.write() as work:
        for number in range(MANY):
            await add_binding(
                work,
                world.acme,
                binding_body(sub_pattern=f"repo:acme/{number}", repository_id="42"),
                cli_caller("org_platform"),
                world.services.issuers,
            )
    page = await see(world, OF_42)
    assert len(cells(page, "Scope")) == PAGE_ROWS
    assert f"The newest {PAGE_ROWS} are shown. All {MANY} are revoked." in page.one("main").text

    answer = await press(world, page.html, f"Revoke all {MANY} bindings permanently")

    assert answer.status_code == 303
    assert await world.bindings(state="active") == []
    assert len(await world.audit(event="oidc_binding_revoked")) == MANY


async def test_a_faulty_reason_revokes_nothing_and_is_kept(world: World):
    await bound(world, "a")
    page = await see(world, OF_42)

    again = await shown(
        await press(world, page.html, "Revoke the binding permanently", reason="x" * 1025), 400
    )

    assert again.one("p", id="hint-revoke-reason").text.startswith("reason must be at most")
    assert len(await world.bindings(state="active")) == 1


async def test_the_page_is_for_those_who_may_revoke(world: World):
    await bound(world, "a")
    await grant(world, "member", "oidc:r", "oidc:w")
    page = await see(world, OF_42, "team_admin")
    assert "You cannot revoke them" in page.one("main").text
    assert PATH not in page.forms
    for who in ("auditor", "stranger"):
        headers = world.session(who) | OWN_PAGE
        assert (await world.client.get(OF_42, headers=headers)).status_code == 403
        assert (await world.client.post(PATH, headers=headers)).status_code == 403


async def test_hostile_texts_are_texts(world: World):
    await world.bind(sub_pattern=HOSTILE.replace(" ", "_"), repository_id="42")
    for path in (OF_42, f"{PATH}?issuer={HOSTILE}&repository_id=42".replace(" ", "%20")):
        response = await world.client.get(path, headers=world.session("owner") | OWN_PAGE)
        html = await response.get_data(as_text=True)
        assert "<img" not in html
        assert "<script>alert" not in html


async def test_every_page_of_bindings_shows_conditions(world: World):
    """A binding that takes one environment alone must not look like one that takes all jobs."""
    await world.bind(repository_id="42", conditions={"environment": "Europe <b>production"})
    columns = {
        BINDINGS: "Started by",
        OF_42: "Events",
        f"{ORG}/trust/map": "Started by",
        f"{ORG}/reports/access": "Events",
    }
    for path, column in columns.items():
        page = await see(world, path)
        assert cells(page, column) == ["push, environment Europe <b>production"], path
