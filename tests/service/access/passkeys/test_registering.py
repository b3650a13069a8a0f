"""Adding a passkey: what is asked for, what is kept, and what is refused."""

from typing import Any

import msgspec
import pytest

from service.access.passkeys.repository import PASSKEY_EXISTS, PER_MEMBER_MAX, TOO_MANY_PASSKEYS
from service.access.refusals import PASSKEY_NOT_MADE, PASSKEY_NOT_UNDER_WAY
from service.core.settings import Settings
from tests.conftest import SettableClock, refused, running_world
from tests.service.access.passkeys.authenticators import (
    PRESENT,
    VERIFIED,
    Authenticator,
    decoded,
    encoded,
)
from tests.service.access.passkeys.holders import PROFILE, SIGN_IN, Holder

NOT_MADE = (400, PASSKEY_NOT_MADE.text)
NOT_UNDER_WAY = (400, PASSKEY_NOT_UNDER_WAY.text)


async def test_what_the_browser_is_asked_for(holder: Holder) -> None:
    """A passkey that finds its owner, unlocked by its owner; no word on who made the device."""
    first, second = await holder.begin_registration(), await holder.begin_registration()

    assert first["rp"] == {"id": "localhost", "name": "Countersign"}
    assert first["authenticatorSelection"]["residentKey"] == "required"
    assert first["authenticatorSelection"]["userVerification"] == "required"
    assert first["attestation"] == "none"
    assert first["excludeCredentials"] == []
    assert first["user"]["name"] == "auditor@acme.example (acme)"
    assert first["challenge"] != second["challenge"]
    assert len(decoded(first["challenge"])) == len(decoded(first["user"]["id"])) == 32


async def test_a_passkey_is_added_with_one_row(holder: Holder) -> None:
    member = holder.world.members["auditor"]
    before = len(await holder.world.audit())

    answer = await holder.register("  Ada’s laptop ")

    assert answer.status_code == 201
    assert await answer.get_json() == {"next": f"{PROFILE}?done=passkey-added"}
    rows = await holder.world.audit()
    assert len(rows) == before + 1
    made = holder.authenticator.credentials[0]
    assert rows[0]["event"] == "passkey_registered"
    assert rows[0]["payload"] == {"member_id": member.id, "credential_id": encoded(made.id)}
    assert (rows[0]["actor"], rows[0]["subject"]) == (f"github:{member.id}", member.id)
    assert rows[0]["request_id"] == answer.headers["x-request-id"]
    assert "Ada’s laptop" in (await holder.profile()).one("main").text


async def test_the_next_one_is_for_the_same_person_and_another_device(registered: Holder) -> None:
    """One handle for each member; a device that has one of their passkeys makes no second one."""
    made = registered.authenticator.credentials[0]

    options = await registered.begin_registration()

    assert options["user"]["id"] == made.user_handle
    assert [one["id"] for one in options["excludeCredentials"]] == [encoded(made.id)]
    elsewhere = await Holder(registered.world).with_session_of("owner").begin_registration()
    assert elsewhere["user"]["id"] != made.user_handle
    assert elsewhere["excludeCredentials"] == []


@pytest.mark.parametrize(
    "lies",
    [
        {"rp_id": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:8081"},
        {"origin": "http://evil.example/http://localhost:8080"},
        {"cross_origin": True},
        {"type": "webauthn.get"},
        {"challenge": encoded(bytes(32))},
        {"flags": PRESENT},
        {"flags": VERIFIED},
        {"public_key": {1: 2, 3: -7, -1: 1, -2: b"\x01" * 32, -3: b"\x01" * 32}},
        {"public_key": {1: 3, 3: -65535, -1: b"\x01" * 256, -2: b"\x01\x00\x01"}},
        {"public_key": {}},
        {"credential_id": b""},
        {"credential_id": bytes(1024)},
        {"attestation": {"fmt": "packed", "attStmt": {"alg": -7, "sig": b"x"}}},
        {"attestation": {"fmt": "made-up"}},
        {"attestation": {"authData": b""}},
    ],
    ids=lambda lies: " ".join(f"{name}={value}"[:40] for name, value in lies.items()),
)
async def test_one_fault_is_enough(holder: Holder, lies: dict[str, Any]) -> None:
    before = await holder.world.audit()

    assert await refused(await holder.register(**lies)) == NOT_MADE
    assert await holder.world.audit() == before


GARBAGE: list[Any] = [
    None,
    "x",
    [],
    {},
    {"id": "é", "rawId": "é", "type": "public-key", "response": {}},
    {"id": 1, "rawId": [], "type": {}, "response": "x"},
]


async def test_garbage_is_refused(holder: Holder) -> None:
    options = await holder.begin_registration()
    good = holder.authenticator.make(options)
    inside = [
        {**good, "response": {**good["response"], name: value}}
        for name in ("clientDataJSON", "attestationObject")
        for value in ("", "AAAA", "////", 7, None, encoded(b"[" * 3000), encoded(b"\x9f" * 3000))
    ]
    for sent in [*GARBAGE, *inside]:
        holder.world.clock.advance(seconds=10)  # or there would be too many attempts
        assert await refused(await holder.finish_registration(sent)) == NOT_MADE

    assert (await holder.finish_registration(good)).status_code == 201


async def test_a_body_is_bounded(holder: Holder) -> None:
    await holder.begin_registration()

    answer = await holder.finish_registration("x" * 70_000)

    assert await refused(answer) == (413, "request body is too large")


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\x00b", "a\u202eb", None, 7])
async def test_a_name_is_one_that_can_be_read(holder: Holder, name: Any) -> None:
    """Its owner has to know which passkey to remove; the same answer may come with a better one."""
    credential = holder.authenticator.make(await holder.begin_registration())

    status, text = await refused(await holder.finish_registration(credential, name))

    assert (status, text.partition(" ")[0]) == (400, "name")
    assert (await holder.finish_registration(credential, "x" * 100)).status_code == 201


# The challenge


async def test_a_challenge_makes_one_passkey(holder: Holder) -> None:
    options = await holder.begin_registration()
    copied = dict(holder.cookies)
    answer = await holder.finish_registration(holder.authenticator.make(options))
    assert answer.status_code == 201

    holder.cookies = copied

    answer = await holder.finish_registration(holder.authenticator.make(options))
    assert await refused(answer) == NOT_UNDER_WAY


async def test_a_challenge_of_another_session_is_none(holder: Holder) -> None:
    """Otherwise a member could have their own passkey added to another member's account."""
    options = await holder.begin_registration()
    holder.with_session_of("owner")

    answer = await holder.finish_registration(holder.authenticator.make(options))

    assert await refused(answer) == NOT_UNDER_WAY


@pytest.mark.parametrize(("seconds", "status"), [(298, 201), (300, 400), (900, 400)])
async def test_a_challenge_is_good_for_five_minutes(
    holder: Holder, seconds: int, status: int
) -> None:
    options = await holder.begin_registration()
    kept = dict(holder.cookies)
    holder.world.clock.advance(seconds=seconds)
    holder.cookies |= kept

    answer = await holder.finish_registration(holder.authenticator.make(options))

    assert answer.status_code == status


@pytest.mark.parametrize("change", [lambda value: "", lambda value: value[:-1] + "!"])
async def test_a_challenge_counts_under_our_signature(holder: Holder, change: Any) -> None:
    options = await holder.begin_registration()
    holder.cookies["new_passkey"] = change(holder.cookies["new_passkey"])

    answer = await holder.finish_registration(holder.authenticator.make(options))

    assert await refused(answer) == NOT_UNDER_WAY


async def test_a_challenge_for_signing_in_registers_nothing(holder: Holder) -> None:
    """Each purpose has a key of its own."""
    options = await holder.begin_registration()
    sign_in = await holder.begin_sign_in()
    holder.cookies["new_passkey"] = holder.cookies["sign_in_passkey"]

    credential = holder.authenticator.make(options | {"challenge": sign_in["challenge"]})

    assert await refused(await holder.finish_registration(credential)) == NOT_UNDER_WAY


async def test_of_two_first_registrations_one_decides_who_the_member_is(holder: Holder) -> None:
    """A second handle would make two people of one, on the same device."""
    other = Holder(holder.world, dict(holder.cookies))
    theirs, options = await other.begin_registration(), await holder.begin_registration()
    assert theirs["user"]["id"] != options["user"]["id"]
    answer = await holder.finish_registration(holder.authenticator.make(options))
    assert answer.status_code == 201

    answer = await other.finish_registration(other.authenticator.make(theirs))

    assert await refused(answer) == NOT_UNDER_WAY
    assert (await other.register()).status_code == 201


# Who may


async def test_a_credential_is_one_members(registered: Holder) -> None:
    """Otherwise a person who knows its id could take it from its owner."""
    taken = registered.authenticator.credentials[0].id
    other = Holder(registered.world).with_session_of("owner")

    answer = await other.register(credential_id=taken)

    assert await refused(answer) == (409, PASSKEY_EXISTS.text)


async def test_a_member_has_so_many_at_most(holder: Holder) -> None:
    """A list that a person can look through."""
    for number in range(PER_MEMBER_MAX):
        holder.world.clock.advance(seconds=20)
        assert (await holder.register(f"Key {number}")).status_code == 201

    assert await refused(await holder.register()) == (409, TOO_MANY_PASSKEYS.example_text())


@pytest.mark.parametrize("step", ["begin", "finish"])
@pytest.mark.parametrize(
    ("headers", "csrf", "status"),
    [
        ({"origin": "https://evil.example"}, None, 403),
        ({"origin": "null"}, None, 403),
        ({}, None, 403),
        (None, "wrong", 403),
        (None, "", 403),
        (None, 7, 403),
    ],
    ids=str,
)
async def test_another_site_cannot_add_one(
    holder: Holder, step: str, headers: dict[str, str] | None, csrf: Any, status: int
) -> None:
    options = await holder.begin_registration()
    body = {
        "csrf": await holder.csrf() if csrf is None else csrf,
        "name": "Laptop",
        "credential": holder.authenticator.make(options),
    }
    more = {} if headers is None else {"headers": headers}

    answer = await holder.post_json(f"{PROFILE}/passkeys/{step}", body, **more)

    assert answer.status_code == status
    assert await holder.world.audit(event="passkey_registered") == []


@pytest.mark.parametrize(
    ("base_url", "rp_id"),
    [
        ("https://Audit.example:8443", "audit.example"),
        ("http://localhost:9000", "localhost"),
        ("http://127.0.0.1:8080", None),
        ("http://[::1]:8080", None),
        ("https://192.0.2.7", None),
        ("http://audit.example", None),
    ],
)
async def test_passkeys_are_for_a_name_over_https(
    settings: Settings, clock: SettableClock, base_url: str, rp_id: str | None
) -> None:
    """Browsers have none for anything else, except on this very machine: then none are offered."""
    served = msgspec.structs.replace(settings, base_url=base_url)
    async with running_world(served, clock, has_sealer=False) as world:
        holder = Holder(world, authenticator=Authenticator()).with_session_of("owner")
        own = {"origin": world.services.settings.origin}
        begun = await holder.post_json(f"{SIGN_IN}/begin", {}, headers=own)
        offers = len((await holder.profile()).all("form", **{"data-passkey": "register"}))

        if rp_id is None:
            assert await refused(begun) == (404, "not found")
        else:
            assert (await begun.get_json())["rpId"] == rp_id
        assert offers == (rp_id is not None)
