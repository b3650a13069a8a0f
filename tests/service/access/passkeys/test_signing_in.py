"""Signing in with a passkey: who gets in, who does not, and what is remembered of it."""

from typing import Any

import pytest

from service.access.passkeys.sign_in import ANOTHER_MEMBER, COUNTER, NOT_PROVED, PASSKEY_REMOVED
from service.access.refusals import PASSKEY_NOT_UNDER_WAY, PASSKEY_REFUSED, TOO_MANY_SIGN_INS
from service.access.sign_in.completion import MEMBER_REMOVED
from service.access.sign_in.rate_limit import PER_ADDRESS_MAX
from service.core.header_names import SESSION_COOKIE
from service.orgs.members import remove_member
from service.store.tables import Member
from tests.conftest import BY_OPERATOR, refused
from tests.service.access.passkeys.authenticators import PRESENT, VERIFIED, encoded, new_key
from tests.service.access.passkeys.holders import PROFILE, SIGN_IN, Holder
from tests.service.access.passkeys.test_registering import GARBAGE
from tests.service.pages.page import AUDIT, ORG, Page

REFUSED = (403, PASSKEY_REFUSED.text)
NOT_UNDER_WAY = (400, PASSKEY_NOT_UNDER_WAY.text)


async def check_signed_out(holder: Holder) -> None:
    assert not holder.is_signed_in
    assert await holder.world.audit(event="passkey_authentication_succeeded") == []


async def test_a_member_signs_in(registered: Holder) -> None:
    member = registered.world.members["auditor"]
    used = encoded(registered.authenticator.credentials[0].id)
    before = len(await registered.world.audit())

    first = await registered.sign_in()
    await registered.sign_in()

    assert first.status_code == 200
    assert await first.get_json() == {"next": ORG}
    assert (await registered.get(AUDIT)).status_code == 200
    rows = await registered.world.audit()
    assert len(rows) == before + 2
    assert [row["payload"] for row in rows[:2]] == [
        {
            "member_id": member.id,
            "credential_id": used,
            "counter_before": count,
            "counter_after": count + 1,
        }
        for count in (1, 0)
    ]
    assert rows[1]["event"] == "passkey_authentication_succeeded"
    assert (rows[1]["actor"], rows[1]["actor_source"]) == (f"github:{member.id}", "session")
    assert (rows[1]["subject"], rows[1]["verdict_source"]) == (member.id, "dashboard")
    assert rows[1]["request_id"] == first.headers["x-request-id"]


async def test_the_button_waits_for_a_script(holder: Holder) -> None:
    """Without one, or without passkeys in the browser, it could only fail; `next` comes along."""
    answer = await holder.get("/admin/ui/sign-in", next=PROFILE)
    page = Page(await answer.get_data(as_text=True))

    form = page.one("form", **{"data-passkey": "sign-in"})
    assert "hidden" in form.attributes
    assert (form.attributes["data-begin"], form.attributes["data-finish"]) == (
        f"{SIGN_IN}/begin",
        f"{SIGN_IN}/finish",
    )
    assert page.values("next") == [PROFILE]


async def test_what_the_browser_is_asked_to_prove(holder: Holder) -> None:
    """Any passkey of this site: a list of some would tell strangers who is a member."""
    first, second = await holder.begin_sign_in(), await holder.begin_sign_in()

    assert first["rpId"] == "localhost"
    assert first["allowCredentials"] == []
    assert first["userVerification"] == "required"
    assert first["challenge"] != second["challenge"]


async def test_the_cookie_of_a_challenge_is_out_of_reach_and_goes_away(registered: Holder) -> None:
    """It is what makes the answer this browser's."""
    registered.cookies.clear()
    begun = await registered.post_json(f"{SIGN_IN}/begin", {})

    assert {"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=300"} <= set(
        begun.headers["set-cookie"].split("; ")
    )
    assert (await registered.sign_in()).status_code == 200
    assert list(registered.cookies) == [SESSION_COOKIE]


@pytest.mark.parametrize(
    ("given", "lands"),
    [
        (f"{AUDIT}?last=7d", f"{AUDIT}?last=7d"),
        (PROFILE, PROFILE),
        ("/admin/ui/orgs/other/audit", ORG),
        ("//evil.example/admin/ui/orgs/acme/audit", ORG),
        ("", ORG),
        (None, ORG),
        (["/admin/ui/profile"], ORG),
    ],
)
async def test_after_signing_in_a_member_lands_on_a_page_of_their_own(
    registered: Holder, given: Any, lands: str
) -> None:
    options = await registered.begin_sign_in()
    credential = registered.authenticator.prove(options)

    answer = await registered.finish_sign_in(credential, next=given)

    assert await answer.get_json() == {"next": lands}


async def test_signing_in_gives_a_new_session(registered: Holder) -> None:
    """A cookie that was planted before is worth nothing after: neither made up nor theirs."""
    planted = registered.world.cookies["stranger"]
    options = await registered.begin_sign_in()
    registered.cookies[SESSION_COOKIE] = planted

    answer = await registered.finish_sign_in(registered.authenticator.prove(options))

    assert answer.status_code == 200
    assert registered.cookies[SESSION_COOKIE] != planted
    assert (await registered.get(AUDIT)).status_code == 200
    registered.cookies[SESSION_COOKIE] = planted
    assert (await registered.get(AUDIT)).status_code == 403


# What does not prove anything


@pytest.mark.parametrize(
    "lies",
    [
        {"rp_id": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:8081"},
        {"origin": "http://evil.example/http://localhost:8080"},
        {"cross_origin": True},
        {"type": "webauthn.create"},
        {"challenge": encoded(bytes(32))},
        {"flags": PRESENT},
        {"flags": VERIFIED},
        {"key": new_key()},
    ],
    ids=lambda lies: " ".join(f"{name}={value}"[:40] for name, value in lies.items()),
)
async def test_one_fault_is_enough(registered: Holder, lies: dict[str, Any]) -> None:
    member = registered.world.members["auditor"]

    assert await refused(await registered.sign_in(**lies)) == REFUSED

    await check_signed_out(registered)
    (row,) = await registered.failures()
    assert row["payload"] == {"method": "passkey", "reason": NOT_PROVED}
    assert (row["subject"], row["actor"]) == (member.id, "system:sign-in")


async def test_garbage_is_refused(registered: Holder) -> None:
    options = await registered.begin_sign_in()
    registered.cookies.pop(SESSION_COOKIE)
    good = registered.authenticator.prove(options)
    inside = [
        {**good, "response": {**good["response"], name: value}}
        for name in ("clientDataJSON", "authenticatorData", "signature", "userHandle")
        for value in ("", "AAAA", "////", 7, [], encoded(b"[" * 3000), encoded(b"\x9f" * 3000))
    ]
    for sent in [*GARBAGE, *inside]:
        registered.world.clock.advance(seconds=4)  # or there would be too many attempts
        registered.cookies.pop(SESSION_COOKIE, None)
        status, _ = await refused(await registered.finish_sign_in(sent))
        assert status in {400, 403}, sent

    await check_signed_out(registered)


async def test_a_body_is_bounded(registered: Holder) -> None:
    await registered.begin_sign_in()

    assert (await refused(await registered.finish_sign_in("x" * 70_000)))[0] == 413


async def test_an_unknown_passkey_leaves_no_row(registered: Holder) -> None:
    """No organisation's log can be filled by strangers; they are told no more than others."""
    stranger = Holder(registered.world)
    stranger.authenticator.make({"rp": {"id": "localhost"}, "user": {"id": "x"}, "challenge": ""})
    before = await registered.world.audit()

    assert await refused(await stranger.sign_in()) == REFUSED
    assert await registered.world.audit() == before


# What proves a key, and admits no one all the same


async def expect_refused_for(holder: Holder, answer: Any, reason: str) -> None:
    member = holder.world.members["auditor"]
    assert await refused(answer) == REFUSED
    assert not holder.is_signed_in
    row = (await holder.failures())[0]
    assert row["payload"] == {"method": "passkey", "reason": reason}
    assert (row["subject"], row["actor"]) == (member.id, f"github:{member.id}")
    assert row["tenant_id"] == holder.world.acme.id


@pytest.mark.parametrize("back_to", [1, 2, 3])
async def test_a_counter_that_does_not_grow_gives_a_copy_away(
    registered: Holder, back_to: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two devices count one key's uses apart (WebAuthn Level 3, 6.1.1). The owner's goes on."""
    for _ in range(3):
        assert (await registered.sign_in()).status_code == 200

    answer = await registered.sign_in(sign_count=back_to)

    await expect_refused_for(registered, answer, COUNTER)
    captured = capfd.readouterr()
    assert "passkey_refused" in captured.out + captured.err
    assert (await registered.sign_in()).status_code == 200


async def test_a_counter_that_ends_gives_a_copy_away(registered: Holder) -> None:
    """An authenticator that has counted goes on counting."""
    assert (await registered.sign_in()).status_code == 200

    await expect_refused_for(registered, await registered.sign_in(sign_count=0), COUNTER)


async def test_an_authenticator_need_not_count(holder: Holder) -> None:
    """Those of synchronised passkeys do not; ours does."""
    holder.authenticator.counts = False
    await holder.register()

    for _ in range(3):
        assert (await holder.sign_in()).status_code == 200

    (last, *_) = await holder.world.audit(event="passkey_authentication_succeeded")
    assert last["payload"]["counter_after"] == 3


async def test_a_counter_counts_only_once_the_signature_holds(registered: Holder) -> None:
    """Otherwise anyone who knows a credential's id could lock its owner out."""
    forged = {"key": new_key(), "sign_count": 4_000_000_000}

    assert await refused(await registered.sign_in(**forged)) == REFUSED

    assert (await registered.failures())[0]["payload"]["reason"] == NOT_PROVED
    assert (await registered.sign_in()).status_code == 200


async def test_a_passkey_speaks_for_its_own_member(registered: Holder) -> None:
    other = Holder(registered.world).with_session_of("owner")
    await other.register()
    theirs = other.authenticator.credentials[0].user_handle

    answer = await registered.sign_in(user_handle=theirs)

    await expect_refused_for(registered, answer, ANOTHER_MEMBER)


@pytest.mark.parametrize("handle", [None, "", "AAAA"])
async def test_a_passkey_says_whom_it_means(registered: Holder, handle: str | None) -> None:
    answer = await registered.sign_in(user_handle=handle)

    await expect_refused_for(registered, answer, ANOTHER_MEMBER)


async def test_a_removed_member_stays_out(registered: Holder) -> None:
    async with registered.world.services.store.write() as work:
        member = await work.session.get_one(Member, registered.world.members["auditor"].id)
        await remove_member(work, registered.world.acme, member, BY_OPERATOR)

    await expect_refused_for(registered, await registered.sign_in(), MEMBER_REMOVED)


async def test_a_removed_passkey_stays_out(registered: Holder) -> None:
    credential = registered.authenticator.credentials[0]
    form = {"csrf": await registered.csrf(), "passkey": encoded(credential.id)}
    assert (await registered.post(f"{PROFILE}/passkeys/remove", **form)).status_code == 303

    await expect_refused_for(registered, await registered.sign_in(), PASSKEY_REMOVED)


# The challenge


async def test_a_challenge_is_answered_once(registered: Holder) -> None:
    options = await registered.begin_sign_in()
    copied = dict(registered.cookies)
    credential = registered.authenticator.prove(options)
    assert (await registered.finish_sign_in(credential)).status_code == 200

    registered.cookies = copied

    assert await refused(await registered.finish_sign_in(credential)) == NOT_UNDER_WAY
    assert len(await registered.world.audit(event="passkey_authentication_succeeded")) == 1


async def test_an_answer_that_was_refused_uses_the_challenge_up(registered: Holder) -> None:
    registered.cookies.pop(SESSION_COOKIE)
    options = await registered.begin_sign_in()
    wrong = registered.authenticator.prove(options, flags=PRESENT)
    assert await refused(await registered.finish_sign_in(wrong)) == REFUSED

    right = registered.authenticator.prove(options)

    assert await refused(await registered.finish_sign_in(right)) == NOT_UNDER_WAY
    await check_signed_out(registered)


async def test_a_challenge_of_another_browser_is_none(registered: Holder) -> None:
    """Otherwise an attacker's own answer could be given to a victim's browser."""
    elsewhere = Holder(registered.world)
    options = await elsewhere.begin_sign_in()
    credential = registered.authenticator.prove(options)
    registered.cookies.pop(SESSION_COOKIE)

    assert await refused(await registered.finish_sign_in(credential)) == NOT_UNDER_WAY
    await registered.begin_sign_in()
    assert await refused(await registered.finish_sign_in(credential)) == REFUSED
    await check_signed_out(registered)


@pytest.mark.parametrize(("seconds", "status"), [(298, 200), (300, 400), (900, 400)])
async def test_a_challenge_is_good_for_five_minutes(
    registered: Holder, seconds: int, status: int
) -> None:
    options = await registered.begin_sign_in()
    registered.world.clock.advance(seconds=seconds)

    answer = await registered.finish_sign_in(registered.authenticator.prove(options))

    assert answer.status_code == status


@pytest.mark.parametrize("step", ["begin", "finish"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "null"}, {"origin": "https://evil.example"}, {"sec-fetch-site": "same-site"}],
    ids=str,
)
async def test_another_site_cannot_sign_a_visitor_in(
    registered: Holder, step: str, headers: dict[str, str]
) -> None:
    """Otherwise a page could sign its visitor in as another person, and watch what they do."""
    options = await registered.begin_sign_in()
    registered.cookies.pop(SESSION_COOKIE)
    body = {"credential": registered.authenticator.prove(options)}

    answer = await registered.post_json(f"{SIGN_IN}/{step}", body, headers=headers)

    assert await refused(answer) == (403, "cross-site request refused")
    await check_signed_out(registered)


async def test_attempts_are_limited(registered: Holder) -> None:
    registered.world.clock.advance(minutes=1)
    for _ in range(PER_ADDRESS_MAX // 2):
        await registered.begin_sign_in()
        await registered.finish_sign_in("x")

    for step in ("begin", "finish"):
        answer = await registered.post_json(f"{SIGN_IN}/{step}", {})
        assert answer.headers["retry-after"] == "60"
        assert await refused(answer) == (429, TOO_MANY_SIGN_INS.text)
    link = await registered.post("/sign-in", token="x")
    assert (await refused(link))[0] == 429


async def test_no_secret_of_a_sign_in_is_logged(
    registered: Holder, capfd: pytest.CaptureFixture[str]
) -> None:
    options = await registered.begin_sign_in()
    kept = registered.cookies["sign_in_passkey"]
    credential = registered.authenticator.prove(options)
    await registered.finish_sign_in(credential)
    await registered.sign_in(flags=PRESENT)
    secrets = [kept, options["challenge"], credential["response"]["signature"]]

    captured = capfd.readouterr()
    logged = captured.out + captured.err

    assert f"{SIGN_IN}/finish" in logged
    assert [secret for secret in secrets if secret in logged] == []
