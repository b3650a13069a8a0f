"""The API of API keys: what may be issued, by whom, and for how long."""

from typing import Any

import msgspec
import pytest

from tests.conftest import World, grant, refused, running_world, unscoped_key

KEYS = "/api/v1/admin/orgs/acme/api-keys"
SCOPES = "audit:r, audit:export, oidc:r, policy:r, packages:install, audit:ingest"


async def ask(world: World, method: str, path: str = "", who: str = "owner", **body: Any) -> Any:
    headers = world.admin if who == "operator" else world.session(who)
    sent = {} if method in {"GET", "DELETE"} else {"json": body}
    return await world.client.open(KEYS + path, method=method, headers=headers, **sent)


async def issued(world: World, who: str = "owner", **body: Any) -> dict[str, Any]:
    answer = await ask(world, "POST", who=who, **({"name": "ci", "scopes": ["audit:r"]} | body))
    assert answer.status_code == 201, await answer.get_data()
    assert answer.headers["cache-control"] == "no-store"
    return dict(await answer.get_json())


async def listed(world: World) -> list[dict[str, Any]]:
    return list((await (await ask(world, "GET")).get_json())["api_keys"])


async def test_a_key_is_issued_listed_rotated_and_revoked(world: World) -> None:
    key = await issued(world, scopes=["packages:install"], project="payments", expires="30d")
    assert (key["scopes"], key["project_id"]) == (["packages:install"], world.project.id)
    assert key["expires_at"] == "2026-04-03T12:00:00.123Z"
    world.clock.advance(seconds=1)

    answer = await ask(world, "POST", f"/{key['id']}/rotate", overlap="2h")
    new = await answer.get_json()
    assert (answer.status_code, new["replaces"]) == (201, key["id"])
    assert new["replaced_until"] == "2026-03-04T14:00:01.123Z"
    assert new["expires_at"] == "2026-04-03T12:00:01.123Z"

    answer = await ask(world, "DELETE", f"/{new['id']}")
    assert await answer.get_json() == {"revoked": new["id"]}
    keys = await listed(world)
    assert [(one["id"], one["is_live"]) for one in keys] == [(new["id"], False), (key["id"], True)]
    assert not any("secret" in one for one in keys)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"scopes": []}, f"name at least one scope of {SCOPES}"),
        ({"scopes": ["oidc:w"]}, f"scopes must be of {SCOPES}, not oidc:w"),
        ({"scopes": "audit:r"}, "scopes must be an array of strings"),
        ({"scopes": [1]}, "scopes must be an array of strings"),
        ({"scopes": ["audit:r"] * 20}, "scopes must be at most 12"),
        ({"name": None}, "name must be a string"),
        ({"name": ""}, "name must be 1 to 100 printable characters"),
        ({"expires": 90}, "expires must be a string"),
        (
            {"expires": "soon"},
            "expires must be a length (90d, 12h), a date (2026-12-31) or an instant"
            " (2026-12-31T08:00:00Z), or never",
        ),
        ({"expires": "2026-03-03"}, "expires must be in the future, at most 3650 days ahead"),
        ({"expires": "0d"}, "expires must be in the future, at most 3650 days ahead"),
        ({"expires": "9999-12-31"}, "expires must be in the future, at most 3650 days ahead"),
        ({"expires": "3651d"}, "expires must be in the future, at most 3650 days ahead"),
        (
            {"project": "payments"},
            "a key of a project cannot read: what it reads is not limited to the project",
        ),
        ({"scope": "audit:r"}, "unknown field: scope"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_key_is_refused(
    shared_world: World, body: dict[str, Any], text: str
) -> None:
    answer = await ask(shared_world, "POST", **({"name": "ci", "scopes": ["audit:r"]} | body))

    assert await refused(answer) == (400, text)
    assert await listed(shared_world) == []


async def test_a_request_without_scopes_is_told_which_there_are(world: World) -> None:
    answer = await ask(world, "POST", name="ci")

    assert await refused(answer) == (400, f"name at least one scope of {SCOPES}")


async def test_a_key_may_do_no_more_than_its_issuer(world: World) -> None:
    await grant(world, "admin", "org:admin")
    body = {"name": "ci", "scopes": ["audit:r", "oidc:r"]}

    answer = await ask(world, "POST", who="admin", **body)
    assert await refused(answer) == (403, "missing capability: oidc:r")
    assert await listed(world) == []
    await issued(world, who="admin", scopes=["audit:r"])
    await issued(world, who="operator", scopes=["oidc:r"])


async def test_a_rotation_gives_no_more_than_its_issuer_has(world: World) -> None:
    await grant(world, "admin", "org:admin")
    async with world.services.store.write() as work:
        old, _ = unscoped_key(world.acme.id)
        work.session.add(old)
    key = await issued(world, scopes=["oidc:r"])

    for key_id, scope in ((key["id"], "oidc:r"), (old.id, "packages:install")):
        answer = await ask(world, "POST", f"/{key_id}/rotate", who="admin", overlap="1h")
        status, text = await refused(answer)
        assert (status, text.partition(": ")[0]) == (403, "missing capability")
        assert scope == "packages:install" or text.endswith(scope)
    assert len(await listed(world)) == 2


async def test_a_key_outlives_the_role_of_its_issuer(world: World) -> None:
    """It belongs to the organisation: its machines go on when a person changes."""
    await grant(world, "admin", "org:admin")
    key = await issued(world, who="admin", scopes=["audit:r"])
    await grant(world, "admin")

    answer = await world.client.get(
        "/api/v1/admin/orgs/acme/audit", headers={"x-service-api-key": key["secret"]}
    )
    assert answer.status_code == 200


async def test_a_key_issues_no_keys(world: World) -> None:
    key = await issued(world, who="operator", scopes=SCOPES.split(", "))
    client = world.app.test_client(use_cookies=False)
    headers = {"x-service-api-key": key["secret"]}
    answer = await client.post(KEYS, headers=headers, json={"name": "x", "scopes": ["audit:r"]})

    assert await refused(answer) == (403, "missing capability: org:admin")


@pytest.mark.parametrize(
    ("expires", "expires_at"),
    [
        ({}, "2026-06-02T12:00:00.123Z"),
        ({"expires": "never"}, None),
        ({"expires": "2026-03-31"}, "2026-04-01T00:00:00.000Z"),
    ],
)
async def test_a_key_ends_after_90_days_unless_another_end_is_named(
    world: World, expires: dict[str, str], expires_at: str | None
) -> None:
    assert (await issued(world, **expires))["expires_at"] == expires_at


async def test_the_operator_sets_a_longest_life(settings, clock) -> None:
    strict = msgspec.structs.replace(settings, api_key_days_max=30)
    async with running_world(strict, clock, has_sealer=False) as world:
        for expires in ("31d", "never"):
            answer = await ask(world, "POST", name="ci", scopes=["audit:r"], expires=expires)
            assert answer.status_code == 400
        key = await issued(world)
        assert key["expires_at"] == "2026-04-03T12:00:00.123Z"
        page = await world.client.get("/admin/ui/orgs/acme/keys", headers=world.session("owner"))
        offered = await page.get_data(as_text=True)
        assert 'value="30d" selected' in offered
        assert 'value="90d"' not in offered
        assert 'value="never"' not in offered


async def test_keys_that_end_within_14_days_are_marked(world: World) -> None:
    await issued(world, expires="20d")
    assert [key["expires_soon"] for key in await listed(world)] == [False]
    world.clock.advance(hours=12 * 14)
    assert [key["expires_soon"] for key in await by_operator(world)] == [True]
    world.clock.advance(days=14)
    assert [key["expires_soon"] for key in await by_operator(world)] == [False]


async def by_operator(world: World) -> list[dict[str, Any]]:
    """The list when the sessions have ended."""
    answer = await ask(world, "GET", who="operator")
    return list((await answer.get_json())["api_keys"])
