"""The operator's API of organisations: created, listed, moved between tiers, held and released."""

from typing import Any

import pytest
from msgspec import Struct

from service.access.callers import ADMIN_TOKEN_ACTOR
from service.orgs.key_api import IssuedApiKey
from service.orgs.members import IssuedSession, IssuedSignInLink
from service.web.models import SecretAnswer
from tests.conftest import World, refused

ORGS = "/api/v1/operator/orgs"


async def ask(world: World, method: str, path: str = "", **sent: Any) -> Any:
    """What the operator is answered."""
    response = await world.client.open(f"{ORGS}{path}", method=method, headers=world.admin, **sent)
    assert response.status_code in {200, 201}, await response.get_data()
    return await response.get_json()


async def one(world: World, slug: str) -> dict[str, Any]:
    """The organisation as it is listed."""
    (found,) = [each for each in (await ask(world, "GET"))["organisations"] if each["slug"] == slug]
    return dict(found)


async def test_an_organisation_is_created_and_listed(world: World) -> None:
    created = await ask(world, "POST", json={"slug": "new", "tier": "team"})

    listed = await one(world, "new")
    assert created == {name: listed[name] for name in ("id", "slug", "tier")}
    assert (listed["tier"], listed["held_since"]) == ("team", None)


async def test_a_tier_is_changed_and_a_hold_kept_until_its_release(world: World) -> None:
    assert await ask(world, "PUT", "/acme/tier", json={"tier": "free"}) == {
        "slug": "acme",
        "tier": "free",
    }
    held = await ask(world, "PUT", "/acme/hold", json={"reason": "case 1"})
    again = await ask(world, "PUT", "/acme/hold", json={"reason": "case 2"})
    assert again == held | {"held_reason": "case 2"}
    shown = await one(world, "acme")
    assert (shown["tier"], shown["held_since"]) == ("free", held["held_since"])

    assert await ask(world, "DELETE", "/acme/hold?reason=over") == {
        "slug": "acme",
        "held_since": None,
        "held_reason": None,
    }
    assert (await one(world, "acme"))["held_reason"] is None


async def test_users_of_a_domain_need_no_invitation(world: World) -> None:
    rule = {"domain": "Acme.Example", "idp": "google"}

    allowed = await ask(world, "POST", "/acme/domains", json=rule)
    ended = await ask(world, "POST", "/acme/domains", json=rule | {"is_allowed": False})

    assert allowed == {
        "slug": "acme",
        "domain": "acme.example",
        "idp": "google",
        "is_allowed": True,
    }
    assert ended == allowed | {"is_allowed": False}


async def test_each_change_is_the_platforms(world: World) -> None:
    await ask(world, "PUT", "/acme/tier", json={"tier": "free"})
    await ask(world, "PUT", "/acme/hold", json={"reason": "case 1"})
    await ask(world, "POST", "/acme/domains", json={"domain": "acme.example", "idp": "google"})

    rows = {row["event"]: row for row in await world.audit("acme")}

    for event in ("org_tier_changed", "legal_hold_changed", "sign_in_domain_changed"):
        row = rows[event]
        assert row["actor"] == ADMIN_TOKEN_ACTOR
        assert row["actor_tenant_id"] == world.services.settings.platform_tenant_id


@pytest.mark.parametrize(
    ("method", "path", "body", "refusal"),
    [
        ("POST", "", {"slug": "acme"}, (409, "organisation acme already exists")),
        ("POST", "", {"slug": "-"}, (400, "slug must be 1 to 64 letters, digits and inner")),
        ("POST", "", {}, (400, "slug is required")),
        ("POST", "", {"slug": "new", "tier": "gold"}, (400, "tier must be one of free, team")),
        ("PUT", "/acme/tier", {"tier": "gold"}, (400, "tier must be one of free, team")),
        ("PUT", "/acme/hold", {"reason": " "}, (400, "a legal hold needs a reason")),
        ("PUT", "/missing/hold", {"reason": "x"}, (404, "Org not found")),
        ("POST", "/acme/domains", {"domain": "a b", "idp": "google"}, (400, "domain must look")),
        ("POST", "/acme/domains", {"domain": "\u212a.b", "idp": "google"}, (400, "domain must lo")),
        ("POST", "/acme/domains", {"domain": "a.b", "idp": "x"}, (400, "idp must be one of")),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_cannot_be_is_refused(
    shared_world: World, method: str, path: str, body: dict[str, Any], refusal: tuple[int, str]
) -> None:
    answer = await shared_world.client.open(
        f"{ORGS}{path}", method=method, headers=shared_world.admin, json=body
    )

    status, text = await refused(answer)
    assert (status, text[: len(refusal[1])]) == refusal


async def test_a_session_is_started_for_scripts(world: World) -> None:
    """Its cookie is in the answer alone: no cache may store it, and no log shows it."""
    path = f"{ORGS}/acme/members/{world.members['auditor'].email}/sessions"
    response = await world.client.post(path, headers=world.admin)
    cookie = (await response.get_json())["cookie"]

    assert response.headers["cache-control"] == "no-store"
    headers = {"cookie": f"admin_session={cookie}"}
    assert (await world.client.get("/api/v1/session", headers=headers)).status_code == 200


@pytest.mark.parametrize("model", [IssuedApiKey, IssuedSession, IssuedSignInLink])
def test_an_answer_with_a_secret_is_not_written_to_a_log(model: type[Struct]) -> None:
    """Whatever logs an object writes its `repr`."""
    fields = dict.fromkeys(model.__struct_fields__, "csess_secret")

    assert "secret" not in repr(model(**fields))
    assert issubclass(model, SecretAnswer)
