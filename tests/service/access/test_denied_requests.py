"""The log says of each denied request who was denied what, and from where."""

from typing import Any

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from service.access.callers import ADMIN_TOKEN_ACTOR
from service.orgs.api_keys import issue_api_key
from tests.conftest import BY_OPERATOR, World, bindings_path

ADDRESS = "203.0.113.7"
AUDIT = "/api/v1/admin/orgs/acme/audit"
FROM = {"client": (ADDRESS, 1234)}
OTHERS_AUDIT = "/api/v1/admin/orgs/other/audit"


async def logged(world: World, path: str, headers: dict[str, str], **sent: Any) -> dict[str, Any]:
    """The log line of a request for `path`: a GET, or a POST of what is `sent`."""
    with capture_logs(processors=[merge_contextvars]) as lines:
        if sent:
            await world.client.post(path, headers=headers, scope_base=FROM, **sent)
        else:
            await world.client.get(path, headers=headers, scope_base=FROM)
    (line,) = [line for line in lines if line["event"] == "request"]
    return dict(line)


@pytest.mark.parametrize(
    ("name", "path", "reason"),
    [
        ("member", AUDIT, "missing capability: audit:r"),
        ("auditor", bindings_path(), "missing capability: oidc:r"),
        ("owner", OTHERS_AUDIT, "missing capability: audit:r"),
    ],
)
async def test_a_member_without_the_right_is_named(
    world: World, name: str, path: str, reason: str
) -> None:
    """Else a search for what a taken-over session tried would find only a path and a 403."""
    member = world.members[name]

    line = await logged(world, path, world.session(name))

    assert (line["status"], line["reason"]) == (403, reason)
    assert line["actor"] == f"{member.identity_provider}:{member.id}"
    assert line["source_ip"] == ADDRESS


async def test_a_key_without_the_scope_is_named(world: World) -> None:
    async with world.services.store.write() as work:
        key, secret = await issue_api_key(
            work, world.acme, "reader", None, BY_OPERATOR, scopes=["audit:r"]
        )

    line = await logged(
        world, f"{AUDIT}/events", {"x-service-api-key": secret}, json=[{"event": "install_allowed"}]
    )

    assert (line["status"], line["actor"]) == (403, key.id)
    assert secret not in str(line)


async def test_a_form_of_another_site_is_logged_with_the_session_that_it_used(world: World) -> None:
    """A cross-site attack shows as one, not as a member who lacks a right."""
    sent = {**world.session("owner"), "origin": "https://evil.example"}

    line = await logged(world, bindings_path(), sent, json={})

    assert (line["status"], line["reason"]) == (403, "cross-site request refused")
    assert line["actor"].endswith(world.members["owner"].id)


@pytest.mark.parametrize(
    "headers",
    [{}, {"x-service-admin-token": "wrong"}, {"cookie": "admin_session=wrong"}],
    ids=str,
)
async def test_a_caller_who_is_not_known_is_logged_by_address(
    world: World, headers: dict[str, str]
) -> None:
    """Guesses of one machine can be counted; who guessed is not known."""
    line = await logged(world, AUDIT, headers)

    assert (line["status"], line["reason"]) == (401, "missing or invalid credentials")
    assert line["source_ip"] == ADDRESS
    assert "actor" not in line


async def test_an_allowed_request_names_its_caller_and_no_address(world: World) -> None:
    line = await logged(world, AUDIT, world.admin)

    assert (line["status"], line["actor"]) == (200, ADMIN_TOKEN_ACTOR)
    assert "source_ip" not in line
    assert "reason" not in line


async def test_a_rejected_value_is_not_repeated_in_the_log(world: World) -> None:
    """A client may put a secret into the wrong place."""
    line = await logged(world, f"{bindings_path()}?csess_misplaced=1", world.admin)

    assert line["status"] == 400
    assert "misplaced" not in str(line)
