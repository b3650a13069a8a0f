"""The API keys page: a secret is shown once, and a key that is revoked opens nothing."""

import shlex

import pytest

from service.pages import page as page_module
from tests.conftest import ADMIN_TOKEN, World, refused, unscoped_key
from tests.service.pages.page import ORG, Page, send_form, shown
from tests.service.pages.people.desk import actor, chosen, fault_of, leads_to, logged, post, see

KEYS = f"{ORG}/keys"


async def issue(world: World, page: Page | None = None, who: str = "owner", **fields: str):
    page = page or await see(world, "keys", who)
    typed = {"name": "npm proxy", "project": "", "scopes": "packages:install audit:ingest"} | fields
    return await send_form(world, page, KEYS, who=who, **typed)


def secret_of(page: Page) -> str:
    """The key that the page shows."""
    return page.one("input", id="key-secret").attributes["value"]


async def send_trial(world: World, page: Page):
    """The answer to the line for a shell that the page offers."""
    words = shlex.split(page.one("input", id="key-trial").attributes["value"])
    assert words[:3] == ["curl", "-X", "POST"]
    headers = dict(words[at + 1].split(": ") for at, word in enumerate(words) if word == "-H")
    path = words[3].removeprefix("http://localhost:8080")
    return await world.client.post(path, headers=headers, data=words[words.index("-d") + 1])


@pytest.mark.parametrize("of_project", [True, False])
async def test_a_key_is_shown_once_and_works(world, capfd, caplog, of_project):
    project_id = world.project.id if of_project else None
    answer = await issue(world, project=project_id or "")
    page = await shown(answer)
    secret = secret_of(page)

    assert secret.startswith("cs_")
    assert answer.headers["cache-control"] == "no-store"
    sent = await send_trial(world, page)
    assert (await sent.get_json())["accepted"] == 1
    row, key_row = (await world.audit())[:2]
    assert (row["event"], row["packageName"]) == ("install_allowed", "countersign-trial")
    assert (key_row["event"], key_row["actor"]) == ("api_key_created", actor(world, "owner"))
    assert row["actor"] == key_row["subject"]
    assert key_row["payload"]["project_id"] == project_id
    later = await see(world, "keys")
    listed = later.one("tr", id=row["actor"]).text
    assert "npm proxy" in listed
    assert ("payments" if of_project else "whole organisation") in listed
    assert secret not in later.html + str(await world.audit())
    assert secret not in "".join(capfd.readouterr()) + caplog.text


async def test_what_makes_it_work_once_is_of_one_session(world):
    theirs = await shown(
        await world.client.get(KEYS, headers={"x-service-admin-token": ADMIN_TOKEN})
    )
    before = await logged(world)
    await shown(await issue(world, once=theirs.forms[KEYS]["once"]), 409)

    assert await logged(world) == before


def live_row(page: Page, key_id: str) -> str:
    """What the list says of a key."""
    return " ".join(page.one("tr", id=key_id).text.split())


def key_ids(page: Page) -> list[str]:
    """The keys of the page, newest first."""
    return [row.attributes["id"] for row in page.all("tr") if "id" in row.attributes]


async def test_a_key_says_who_owns_it_and_when_it_was_last_used(world):
    page = await shown(await issue(world))
    (key_id,) = key_ids(page)
    assert "owner@acme.example" in live_row(page, key_id)
    assert "no use recorded" in live_row(page, key_id)

    await send_trial(world, page)
    await world.services.key_use.flush()
    later = await see(world, "keys")

    assert "2026-03-04 12:00" in later.one("td", **{"data-label": "Last used"}).text


async def test_an_expired_key_is_refused_and_listed_as_ended(world):
    page = await shown(await issue(world, expires="30d"))
    (key_id,) = key_ids(page)
    assert (await world.audit())[0]["payload"]["expires_at"] == "2026-04-03T12:00:00.123Z"
    world.clock.advance(days=16)
    assert "soon" not in live_row(await see_later(world), key_id)
    world.clock.advance(days=1)
    assert "soon" in live_row(await see_later(world), key_id)
    world.clock.advance(days=13)
    answer = await send_trial(world, page)

    assert await refused(answer) == (
        401,
        "the API key expired on 2026-04-03T12:00:00.123Z: issue or rotate one",
    )
    ended = await see_later(world)
    assert "expired 2026-04-03 12:00" in live_row(ended, key_id)
    assert "There is no live key" in ended.html


async def see_later(world: World) -> Page:
    """The page once the owner's session would have ended."""
    return await shown(await world.client.get(KEYS, headers=world.admin))


async def test_a_rotated_key_works_beside_its_successor_for_the_overlap(world):
    old = await shown(await issue(world, project=world.project.id, expires="90d"))
    (old_id,) = key_ids(old)
    action = f"{KEYS}/{old_id}/rotate"
    world.clock.advance(seconds=1)
    new = await shown(await send_form(world, old, action, overlap="7d"))
    new_id, listed_old = key_ids(new)

    assert listed_old == old_id
    assert "Rotated: works until it expires" in live_row(new, old_id)
    assert "payments" in live_row(new, new_id)
    assert (await send_trial(world, old)).status_code == 200
    assert (await send_trial(world, new)).status_code == 200
    rows = {row["event"]: row for row in reversed(await world.audit())}
    assert rows["api_key_rotated"]["actor"] == actor(world, "owner")
    assert rows["api_key_rotated"]["subject"] == old_id
    assert rows["api_key_rotated"]["payload"] == {
        "key_id": old_id,
        "new_key_id": new_id,
        "expires_at": "2026-03-11T12:00:01.123Z",
    }
    assert rows["api_key_created"]["payload"]["expires_at"] == "2026-06-02T12:00:01.123Z"
    world.clock.advance(days=7)
    assert (await send_trial(world, old)).status_code == 401
    assert (await send_trial(world, new)).status_code == 200


async def test_without_an_overlap_the_old_key_ends_at_once(world):
    old = await shown(await issue(world))
    (old_id,) = key_ids(old)
    new = await shown(await send_form(world, old, f"{KEYS}/{old_id}/rotate", overlap="0"))

    assert (await send_trial(world, old)).status_code == 401
    assert (await send_trial(world, new)).status_code == 200
    events = [row["event"] for row in await world.audit() if row["event"].startswith("api_")]
    assert events[:3] == ["api_key_revoked", "api_key_rotated", "api_key_created"]


async def test_a_rotation_without_an_overlap_changes_nothing(world):
    """An empty field is not the default."""
    page = await shown(await issue(world))
    (key_id,) = key_ids(page)
    before = await logged(world)
    again = await shown(await send_form(world, page, f"{KEYS}/{key_id}/rotate", overlap=""), 400)

    text = "overlap must be 0 or a length (12h, 7d) of at most 90 days"
    assert fault_of(again, f"rotate-{key_id}-overlap") == text
    assert await logged(world) == before


async def test_a_key_is_rotated_once(world):
    """One of two successors would be forgotten."""
    page = await shown(await issue(world))
    (key_id,) = key_ids(page)
    action = f"{KEYS}/{key_id}/rotate"
    world.clock.advance(seconds=1)
    new = await shown(await send_form(world, page, action, overlap="7d"))
    successor = key_ids(new)[0]
    before = await logged(world)
    again = await shown(await post_once(world, action), 409)

    text = f"API key {key_id} was rotated before: rotate or revoke {successor} instead"
    assert text in again.one("div", role="alert").text
    assert await logged(world) == before
    await post(world, f"keys/{successor}/revoke")
    assert secret_of(await shown(await post_once(world, action)))


async def post_once(world: World, action: str):
    """The form of the page, sent to `action`, which the page may no longer offer."""
    page = await see(world, "keys")
    page.forms[action] = page.forms[KEYS]
    return await send_form(world, page, action, overlap="7d")


async def test_a_rotation_that_fails_midway_changes_nothing(world, monkeypatch):
    page = await shown(await issue(world))
    (key_id,) = key_ids(page)
    before = await logged(world)

    async def fail(*arguments):
        raise RuntimeError

    monkeypatch.setattr("service.orgs.api_keys.revoke_api_key", fail)
    answer = await send_form(world, page, f"{KEYS}/{key_id}/rotate", overlap="0")
    assert answer.status_code == 500

    assert await logged(world) == before
    assert key_ids(await see(world, "keys")) == [key_id]
    assert (await send_trial(world, page)).status_code == 200


async def test_90_days_are_chosen_beforehand(world):
    assert chosen(await see(world, "keys"), "issue-expires") == ["90d"]


async def old_key(world: World, **more) -> tuple[str, str]:
    """A key without scopes: its id and its secret."""
    async with world.services.store.write() as work:
        key, secret = unscoped_key(world.acme.id, **more)
        work.session.add(key)
    return key.id, secret


async def test_a_key_without_scopes_works_and_is_marked(world):
    """It is older than scopes; its owners must learn that it may do more than it should."""
    key_id, secret = await old_key(world)
    row = [{"event": "install_allowed", "packageName": "left-pad"}]
    answer = await world.client.post(
        "/api/v1/admin/orgs/acme/audit/events", headers={"x-service-api-key": secret}, json=row
    )

    assert answer.status_code == 200
    assert "no scopes: rotate it" in live_row(await see(world, "keys"), key_id)


async def test_the_successor_of_a_key_without_scopes_has_them_and_an_end(world):
    key_id, _ = await old_key(world)
    page = await see(world, "keys")
    await shown(await send_form(world, page, f"{KEYS}/{key_id}/rotate", overlap="1h"))

    (row,) = await world.audit(event="api_key_created")
    assert row["payload"]["scopes"] == ["packages:install", "audit:ingest"]
    assert row["payload"]["expires_at"] == "2026-06-02T12:00:00.123Z"


async def test_long_lists_are_paged_and_searched(world, monkeypatch):
    monkeypatch.setattr(page_module, "ROWS_MAX", 3)
    keys = [unscoped_key(world.acme.id, name=f"Many {number // 6}")[0] for number in range(8)]
    ended = unscoped_key(world.acme.id, name="many ended", revoked_at=world.clock())[0]
    async with world.services.store.write() as work:
        work.session.add_all([*keys, ended])
    ids = sorted(key.id for key in keys)
    page, seen = await see(world, "keys?find=mANY"), []
    while True:
        rows = [row.attributes.get("id") for row in page.all("tr")]
        seen.append([each for each in rows if each in ids])
        if "More keys" not in page.one("main").text:
            break
        page = await see(world, page.link("More keys").removeprefix(f"{ORG}/"))
        assert ended.id in page.html

    assert [len(part) for part in seen] == [3, 3, 2]
    assert [each for part in seen for each in part] == ids
    of_id = await see(world, f"keys?find={keys[0].id}")
    assert keys[0].id in of_id.one("main").text
    assert keys[1].id not in of_id.one("main").text
    unmatched = await see(world, "keys?find=%25")
    assert "No live key’s name or id contains this." in unmatched.one("main").text


async def test_a_key_of_any_part_of_the_list_is_revoked(world, monkeypatch):
    monkeypatch.setattr(page_module, "ROWS_MAX", 1)
    keys = [unscoped_key(world.acme.id, name="many")[0] for _ in range(2)]
    keys.sort(key=lambda key: key.id)
    async with world.services.store.write() as work:
        work.session.add_all(keys)
    page = await see(world, f"keys?find=many&after={keys[0].id}")
    action = f"{KEYS}/{keys[1].id}/revoke?find=many&after={keys[0].id}"
    answer = await send_form(world, page, action)

    assert leads_to(answer) == f"{KEYS}?find=many&after={keys[0].id}&done=revoked"
    assert (await world.audit(event="api_key_revoked"))[0]["subject"] == keys[1].id


@pytest.mark.parametrize("ended", [True, False])
async def test_keys_of_another_organisation_are_not_listed(world, ended):
    revoked_at = world.clock() if ended else None
    key = unscoped_key(world.other.id, name="theirs", revoked_at=revoked_at)[0]
    async with world.services.store.write() as work:
        work.session.add(key)

    for path in ("keys", f"keys?find={key.id}"):
        assert f'id="{key.id}"' not in (await see(world, path)).html
