"""`countersign apikey`: expiry, and rotation with an overlap."""

import pytest

from service.app.composition import Services
from service.store.organisations import get_org
from tests.conftest import unscoped_key
from tests.processes.homes import Home

pytestmark = pytest.mark.slow
SENDS = ("--scope", "audit:ingest")


def keys(home: Home) -> dict[str, dict]:
    return {key["id"]: key for key in home.listed("apikey", "list", "--org", "acme")}


def test_a_key_is_issued_with_an_expiry_and_rotated(home):
    old = home.ask("apikey", "issue", "--org", "acme", "--name", "proxy", *SENDS)
    new = home.ask("apikey", "rotate", "--org", "acme", old["id"], "--overlap", "12h")

    listed = keys(home)
    assert new["replaces"] == old["id"]
    assert new["secret"] != old["secret"]
    assert listed[old["id"]]["expires_at"] == new["replaced_until"] < old["expires_at"]
    assert listed[new["id"]]["expires_at"] >= old["expires_at"]
    assert listed[new["id"]]["created_by"] == "system:cli"
    assert listed[new["id"]]["last_used_at"] is None
    assert [key["is_live"] for key in listed.values()] == [True, True]
    said = home.order("apikey", "rotate", "--org", "acme", new["id"], "--overlap", "0")
    assert f"{new['id']} is refused from 20" in said.out
    assert keys(home)[new["id"]]["is_live"] is False


def test_the_command_names_the_scopes_and_has_none_by_default(quiet_home):
    ran = quiet_home.order("apikey", "issue", "--org", "acme", "--name", "x")

    assert ran.code == 2
    for scope in ("--scope", "audit:r", "packages:install", "audit:ingest"):
        assert scope in ran.err
    assert keys(quiet_home) == {}


def test_the_list_says_which_keys_to_rotate(home):
    home.ask("apikey", "issue", "--org", "acme", "--name", "brief", *SENDS, "--expires", "7d")
    home.ask("apikey", "issue", "--org", "acme", "--name", "long", *SENDS, "--expires", "never")

    async def add_old(services: Services) -> None:
        async with services.store.write() as work:
            org = await get_org(work.session, "acme")
            work.session.add(unscoped_key(org.id)[0])

    home.change(add_old)
    shown = home.order("apikey", "list", "--org", "acme").out

    assert shown.count("expires soon: rotate it") == 1
    assert shown.count("no scopes: rotate it") == 1
    assert {key["name"]: key["expires_soon"] for key in keys(home).values()} == {
        "brief": True,
        "long": False,
        "old proxy": False,
    }
