"""Why a binding was revoked: the `reason` parameter."""

from urllib.parse import quote

import pytest

from tests.conftest import World, bindings_path, refused

CONTROLS = "\x00\t\n\r\x1b\x7f\x85\x9b"
UNSEEN = "\u00ad\u061c\u200b\u200d\u200e\u2028\u202e\u2066\ufeff"
INVALID = (400, "reason must be at most 1024 chars with no control characters")


async def revoke(world: World, query: str):
    """Create a binding and DELETE it with this raw query string; the response."""
    created = await (await world.create()).get_json()
    return await world.client.delete(
        f"{bindings_path('acme', created['id'])}{query}", headers=world.admin
    )


@pytest.mark.parametrize(
    ("query", "stored"),
    [
        ("", None),
        ("?reason=", None),
        ("?reason", None),
        ("?reason=key+leaked", "key leaked"),
        ("?reason=%20", " "),
        ("?reason=a%26b%3Dc", "a&b=c"),
        ("?reason=%F0%9F%A6%8A", "🦊"),
        (f"?reason={'r' * 1024}", "r" * 1024),
        (f"?reason={quote('🦊') * 1024}", "🦊" * 1024),
        ("?reason=caf%C3%A9%C2%A0%E2%80%94%20%D7%A9", "café\u00a0— ש"),
    ],
)
async def test_a_reason_is_stored_as_it_was_sent(world: World, query: str, stored: str | None):
    """Free text for people; empty says nothing and is stored as nothing."""
    assert (await revoke(world, query)).status_code == 200

    assert [binding["revokedReason"] for binding in await world.bindings()] == [stored]


@pytest.mark.parametrize(
    "reason",
    [
        *(f"key{character}leaked" for character in CONTROLS + UNSEEN),
        "r" * 1025,
        "🦊" * 1025,
    ],
    ids=lambda reason: reason[3:4].encode("unicode_escape").decode(),
)
async def test_a_reason_that_is_too_long_or_reads_otherwise_is_refused(world: World, reason: str):
    """It is shown to people who did not write it; one that was cut might say the opposite."""
    assert await refused(await revoke(world, f"?reason={quote(reason)}")) == INVALID
    assert [binding["revokedAt"] for binding in await world.bindings()] == [None]


async def test_two_reasons_are_refused(world: World):
    answer = await revoke(world, "?reason=first&reason=second")

    assert await refused(answer) == (400, "reason may be given only once")
    assert [binding["revokedAt"] for binding in await world.bindings()] == [None]


async def test_a_bad_reason_is_refused_for_a_revoked_binding_too(world: World):
    """The request is judged before what it names is looked for."""
    created = await (await world.create()).get_json()
    path = bindings_path("acme", created["id"])
    await world.client.delete(path, headers=world.admin)

    answer = await world.client.delete(f"{path}?reason=%0A", headers=world.admin)

    assert await refused(answer) == INVALID
