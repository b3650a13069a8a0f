"""Letting people in from the command line: the cookie for scripts, the link for browsers."""

from urllib.parse import urlsplit

import pytest

from service.access.passkeys.ceremonies import NewCredential
from service.access.passkeys.challenges import new_registration_challenge
from service.access.passkeys.repository import add_passkey, remove_passkey
from service.app.composition import Services
from service.store.tables import Member
from tests.conftest import BY_OPERATOR, binding_body, bindings_path
from tests.processes.homes import all_entries

pytestmark = pytest.mark.slow

ADA = "ada@acme.example"


@pytest.fixture
def ada(home) -> str:
    member = ("member", "add", "--org", "acme", ADA, "--idp", "github", "--role", "owner")
    return home.ask(*member)["id"]


def test_an_issued_cookie_works_until_its_sessions_are_revoked(home, ada):
    server = home.serve()
    issue = ("session", "issue", "--org", "acme", "--member", ADA)
    cookie = home.ask(*issue, "--cookie", base_url=server.url)["cookie"]
    signed_in = {"cookie": f"admin_session={cookie}"}
    with server.client(headers=signed_in) as client, server.client() as admin:
        assert client.post(bindings_path(), json=binding_body()).status_code == 201
        (row,) = all_entries(admin, event="oidc_binding_created")
        assert (row["actor"], row["actor_source"]) == (f"github:{ada}", "session")

        assert home.ask("session", "revoke", "--org", "acme", "--member", ADA)["sessions"] == 1
        assert client.get(bindings_path()).status_code == 401


def test_a_link_alone_comes_without_a_cookie(home, ada):
    """A cookie is a credential: it is made only when it is asked for."""
    answer = home.ask("session", "issue", "--org", "acme", "--member", ADA)

    assert (answer["member"], answer["cookie"]) == (ada, None)


def test_a_sign_in_link_is_used_up_by_the_button_and_not_by_looking(home, ada):
    """Mail scanners follow links; only a person's POST from our own page signs in, once."""
    server = home.serve()
    issue = ("session", "issue", "--org", "acme", "--member", ADA)
    link = home.ask(*issue, base_url=server.url)["link"]
    assert link.startswith(f"{server.url}/sign-in?token=")
    form = {"token": urlsplit(link).query.removeprefix("token=")}
    own = {"origin": server.url}
    with server.client(headers={}) as client, server.client() as admin:
        for _ in range(2):
            page = client.get(link)
            assert page.status_code == 200
            assert form["token"] in page.text
            assert "<button" in page.text
            assert not page.cookies
        for foreign in ({}, {"origin": "null"}, {"origin": "https://evil.example"}):
            assert client.post("/sign-in", data=form, headers=foreign).status_code == 403
        assert all_entries(admin, event="link_sign_in_succeeded") == []

        signed_in = client.post("/sign-in", data=form, headers=own)
        assert signed_in.status_code == 303
        assert client.get(bindings_path()).status_code == 200
        assert client.get(signed_in.headers["location"]).status_code == 200
        client.cookies.clear()
        assert client.post("/sign-in", data=form, headers=own).status_code == 401
        assert client.get(bindings_path()).status_code == 401
        (row,) = all_entries(admin, event="link_sign_in_succeeded")
    assert (row["subject"], row["verdict_source"]) == (ada, "dashboard")


def test_the_operator_sees_how_members_can_sign_in_and_ends_their_passkeys(home, ada):
    async def sign_up(services: Services) -> None:
        async with services.store.write() as work:
            member = await work.session.get_one(Member, ada)
            member.identity_subject = "7"
            for name in ("laptop", "phone", "lost"):
                challenge = new_registration_challenge("sess_1", member.user_handle, work.now)
                made = NewCredential(name, b"key", 0, [])
                await add_passkey(work, member, challenge, made, name, BY_OPERATOR)
            await remove_passkey(work, member, "lost", BY_OPERATOR)

    (before,) = home.listed("member", "list", "--org", "acme")
    home.change(sign_up)
    (after,) = home.listed("member", "list", "--org", "acme")

    assert (before["linked"], before["passkeys"]) == (False, 0)
    assert (after["linked"], after["passkeys"]) == (True, 2)
    assert "linked" in home.order("member", "list", "--org", "acme").out
    remove = ("member", "remove-passkeys", "--org", "acme", ADA)
    assert [home.ask(*remove)["passkeys"] for _ in range(2)] == [2, 0]
    rows = home.ask("audit", "query", "--org", "acme", "--event", "passkey_removed")["entries"]
    assert [(row["actor"], row["subject"]) for row in rows] == [("system:cli", ada)] * 3
    assert {row["payload"]["credential_id"] for row in rows} == {"laptop", "phone", "lost"}
