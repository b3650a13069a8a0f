"""Secrets that are handed out are stored only hashed, and no log repeats them."""

import pytest

from service.core.secrets import token_hash
from service.orgs.api_keys import issue_api_key
from service.orgs.members import issue_sign_in
from tests.conftest import (
    ADMIN_TOKEN,
    BY_OPERATOR,
    PROXY_SCOPES,
    World,
    binding_body,
    bindings_path,
)
from tests.other_programs import stored_bytes

OWN = {"origin": "http://localhost:8080"}


async def used_secrets(world: World) -> dict[str, str]:
    """Every kind of secret, issued and used, also where it does not work."""
    async with world.services.store.write() as work:
        used_link = await issue_sign_in(work, world.acme, world.members["owner"], BY_OPERATOR)
        open_link = await issue_sign_in(work, world.acme, world.members["admin"], BY_OPERATOR)
        _, api_key = await issue_api_key(
            work, world.acme, "ci", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    client = world.client
    await client.get("/sign-in", query_string={"token": used_link})
    signed_in = await client.post("/sign-in", headers=OWN, form={"token": used_link})
    assert signed_in.status_code == 303
    await client.post("/sign-in", headers=OWN, form={"token": used_link})
    await client.get("/sign-in", query_string={"token": open_link})
    new_cookie = signed_in.headers["set-cookie"].partition(";")[0].partition("=")[2]
    for headers in (
        world.admin,
        world.session("owner"),
        {"cookie": f"admin_session={new_cookie}"},
        {"x-service-api-key": api_key},
        {"x-service-admin-token": new_cookie},
        {"cookie": f"admin_session={api_key}"},
    ):
        await client.get(bindings_path(), headers=headers)
        await client.post(bindings_path(), headers=headers, json=binding_body())
        await client.get("/nothing", headers=headers)
    return {
        "admin token": ADMIN_TOKEN,
        "secret key": world.services.settings.secret_key,
        "issued cookie": world.cookies["owner"],
        "cookie of a sign-in": new_cookie,
        "used link": used_link,
        "open link": open_link,
        "API key": api_key,
    }


async def test_the_database_holds_no_secret_but_its_hash(world: World):
    """A stolen backup does not sign in its thief."""
    secrets = await used_secrets(world)

    stored = stored_bytes(world.services.settings.data_dir)

    found = [name for name, secret in secrets.items() if secret.encode() in stored]
    assert found == []
    for name in ("issued cookie", "cookie of a sign-in", "used link", "open link", "API key"):
        assert token_hash(secrets[name]).encode() in stored, f"the {name} is not in these bytes"


async def test_no_audit_row_holds_a_secret(world: World):
    """Audit rows are exported and handed on."""
    secrets = await used_secrets(world)

    rows = str(await world.audit())

    assert "link_sign_in_succeeded" in rows
    assert [name for name, secret in secrets.items() if secret in rows] == []


async def test_no_log_line_holds_a_secret(
    world: World, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    secrets = await used_secrets(world)

    captured = capfd.readouterr()
    logged = captured.out + captured.err + caplog.text
    assert "/sign-in" in logged
    assert bindings_path() in logged
    assert [name for name, secret in secrets.items() if secret in logged] == []
