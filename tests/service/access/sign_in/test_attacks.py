"""Answers that must not sign a visitor in, from any sender."""

from typing import Any

import pytest

from service.access.sign_in.flow import Flow
from service.access.sign_in.rate_limit import PER_ADDRESS_MAX, TOTAL_MAX
from service.core.header_names import SESSION_COOKIE
from service.core.settings import Settings
from tests.budgets import only_full
from tests.conftest import SettableClock
from tests.databases import elsewhere
from tests.other_programs import stored_bytes
from tests.service.access.sign_in.visitors import SIGN_IN, Visitor, open_visit, told
from tests.sign_in.fixtures import PROVIDERS, ProviderProcess
from tests.sign_in.server import CLIENT_ID, CLIENT_SECRET, DRIP_EVERY_S, TENANT

NOT_UNDER_WAY = (
    "This sign-in was not started in this browser, was already used, or took over 10 minutes."
)
NOT_PROVED = "The answer of the identity provider does not prove who you are."
SAID_NO = "The identity provider did not sign you in."
UNAVAILABLE = "The identity provider is unavailable: try again in a few minutes."
OTHER_TENANT = "99999999-8f2b-4c6e-9d0a-5b7c1e2f3a4b"
PERSONAL_TENANT = "9188040d-6c67-4c5b-b112-36a304b66dad"
LONG_AGO, FAR_AHEAD = 1_000_000_000, 4_000_000_000
LIMIT_S = 3 * DRIP_EVERY_S
"""Long enough for each byte of a provider that drips, and too short for all of them."""


@pytest.fixture(autouse=True)
async def invited(visitor: Visitor) -> None:
    """Each failure has another cause than a missing invitation."""
    await visitor.invite(idp="google")
    await visitor.allow_domain(idp="github", slug="other")
    await visitor.allow_domain(idp="microsoft", slug="other")


async def check_signed_out(visitor: Visitor) -> None:
    assert SESSION_COOKIE not in visitor.cookies
    for slug in ("acme", "other"):
        assert await visitor.world.audit(slug, event="oauth_login_succeeded") == []


# The browser's side


@pytest.mark.parametrize("state", ["", "wrong", None, "é", "x" * 5000])
async def test_a_state_of_another_sign_in_is_refused(visitor: Visitor, state: str | None) -> None:
    """Otherwise an attacker's own code could be given to a victim's browser (RFC 6749, 10.12)."""
    back = await visitor.begin()
    changed = {"code": back["code"]} | ({} if state is None else {"state": state})

    assert await told(await visitor.end(changed), 400) == NOT_UNDER_WAY
    await check_signed_out(visitor)


async def test_a_state_sent_twice_is_refused(visitor: Visitor) -> None:
    back = await visitor.begin()

    path = f"{SIGN_IN}/google/callback?state={back['state']}&state=x&code={back['code']}"

    assert await told(await visitor.get(path), 400) == NOT_UNDER_WAY


async def test_an_answer_without_the_cookie_is_refused(visitor: Visitor) -> None:
    back = await visitor.begin()
    visitor.cookies.clear()

    assert await told(await visitor.end(back), 400) == NOT_UNDER_WAY
    await check_signed_out(visitor)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:-1] + ("A" if value[-1] != "A" else "E"),
        lambda value: "A" + value[1:] if value[0] != "A" else "B" + value[1:],
        lambda value: value.partition(".")[0],
        lambda value: value.partition(".")[0] + ".",
        lambda value: "." + value.partition(".")[2],
        lambda value: value + "A" * 5000,
        lambda value: "é",
        lambda value: "",
    ],
)
async def test_a_cookie_that_was_changed_is_refused(visitor: Visitor, change: Any) -> None:
    back = await visitor.begin()
    visitor.cookies["sign_in"] = change(visitor.cookies["sign_in"])

    assert await told(await visitor.end(back), 400) == NOT_UNDER_WAY


async def test_a_cookie_signed_for_something_else_is_refused(visitor: Visitor) -> None:
    here = visitor.world.services
    back = await visitor.begin()
    flow = visitor.cookies["sign_in"]
    value = here.sign_in.flows.read(flow, Flow, here.clock())
    assert value is not None
    visitor.cookies["sign_in"] = here.sign_in.choices.sign(value)

    assert await told(await visitor.end(back), 400) == NOT_UNDER_WAY

    visitor.cookies["sign_in"] = flow
    assert (await visitor.end(back)).status_code == 303


async def test_a_sign_in_with_one_provider_is_not_one_with_another(visitor: Visitor) -> None:
    """A provider that answers in another's place must not be believed (mix-up, RFC 9700, 4.4)."""
    back = await visitor.begin("google")

    assert await told(await visitor.end(back, "microsoft"), 400) == NOT_UNDER_WAY


async def test_an_answer_counts_once(visitor: Visitor) -> None:
    back = await visitor.begin()
    copied = dict(visitor.cookies)
    assert (await visitor.end(back)).status_code == 303

    visitor.cookies = copied

    assert await told(await visitor.end(back), 400) == NOT_UNDER_WAY
    assert len(await visitor.world.audit(event="oauth_login_succeeded")) == 1


async def test_an_answer_that_failed_is_used_up_too(visitor: Visitor) -> None:
    visitor.idp.be(claims={"nonce": "wrong"})
    back = await visitor.begin()
    copied = dict(visitor.cookies)
    await told(await visitor.end(back), 400)
    visitor.idp.reset()

    visitor.cookies = copied

    assert await told(await visitor.end(back), 400) == NOT_UNDER_WAY


@pytest.mark.parametrize(("seconds", "status"), [(598, 303), (600, 400), (3600, 400)])
async def test_a_sign_in_may_take_ten_minutes(visitor: Visitor, seconds: int, status: int) -> None:
    back = await visitor.begin()
    visitor.world.clock.advance(seconds=seconds)
    visitor.idp.be(now=visitor.world.clock.now.isoformat())

    assert (await visitor.end(back)).status_code == status


# The provider's side


@pytest.mark.parametrize("name", PROVIDERS)
async def test_who_turns_back_at_the_provider_is_told_so(visitor: Visitor, name: str) -> None:
    visitor.idp.be(says_no="access_denied<script>")

    answer = await visitor.sign_in(name)

    assert await told(answer, 400) == SAID_NO
    assert "script" not in await answer.get_data(as_text=True)
    assert "sign_in" not in visitor.cookies
    await check_signed_out(visitor)


@pytest.mark.parametrize("changes", [{"code": ""}, {"code": "x" * 5000}, {"error": "x"}], ids=str)
async def test_an_answer_without_a_code_is_none(visitor: Visitor, changes: dict[str, str]) -> None:
    back = await visitor.begin() | changes
    before = visitor.idp.requests()

    assert await told(await visitor.end(back), 400) == SAID_NO
    assert visitor.idp.requests() == before


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_code_of_another_sign_in_is_refused(visitor: Visitor, name: str) -> None:
    """PKCE: a stolen code is worth nothing in another browser (RFC 7636)."""
    stolen = await visitor.begin(name)
    visitor.cookies.clear()
    own = await visitor.begin(name)

    answer = await visitor.end(own | {"code": stolen["code"]}, name)

    assert await told(answer, 400) == NOT_PROVED
    await check_signed_out(visitor)


ONE_FAULT: dict[str, dict[str, Any]] = {
    "nonce": {"claims": {"nonce": "wrong"}},
    "audience": {"claims": {"aud": "another-service"}},
    "authorized party": {"claims": {"azp": "another-service"}},
    "issuer": {"claims": {"iss": "https://evil.example"}},
    "expired": {"claims": {"exp": LONG_AGO}},
    "from the future": {"claims": {"iat": FAR_AHEAD}},
    "subject": {"without_claims": ["sub"]},
    "signature": {"signed_by": "unpublished"},
    "unsigned": {"header": {"alg": "none"}},
    "unknown key": {"header": {"kid": "another"}},
}
"""One of each kind, on their way through the whole service."""


@pytest.mark.parametrize("name", ["google", "microsoft"])
@pytest.mark.parametrize("wrong", ONE_FAULT)
async def test_an_id_token_with_one_fault_proves_nothing(
    visitor: Visitor, name: str, wrong: str
) -> None:
    visitor.idp.be(**ONE_FAULT[wrong])

    assert await told(await visitor.sign_in(name), 400) == NOT_PROVED
    await check_signed_out(visitor)


@pytest.mark.parametrize(
    "changes",
    [{"aud": [CLIENT_ID]}, {"iat": LONG_AGO}, {"email_verified": "true"}],
    ids=str,
)
async def test_what_providers_may_vary_is_accepted(
    visitor: Visitor, changes: dict[str, Any]
) -> None:
    """The tests above must not pass because everything fails."""
    visitor.idp.be(claims=changes)

    assert (await visitor.sign_in()).status_code == 303


@pytest.mark.parametrize(
    ("name", "seconds", "status"),
    [
        ("exp", 0, 400),
        ("exp", 2, 303),
        ("iat", 60, 303),
        ("iat", 62, 400),
        ("nbf", 60, 303),
        ("nbf", 62, 400),
    ],
)
async def test_an_id_token_is_good_until_its_end(
    visitor: Visitor, name: str, seconds: int, status: int
) -> None:
    now = int(visitor.world.clock.now.timestamp())
    visitor.idp.be(claims={name: now + seconds})

    assert (await visitor.sign_in()).status_code == status


@pytest.mark.parametrize(
    "answer",
    [
        '{"access_token": "x"}',
        '{"id_token": ""}',
        '{"id_token": "a.b"}',
        '{"id_token": "' + "a" * 20_000 + '"}',
        '{"error": "<script>"}',
    ],
)
async def test_an_answer_without_a_good_id_token_proves_nothing(
    visitor: Visitor, answer: str
) -> None:
    visitor.idp.be(token_answer=answer)

    assert await told(await visitor.sign_in(), 400) == NOT_PROVED


OUTAGES = ["down", "oversized", "moved", "not_json"]
STEPS = [
    ("google", "/token"),
    ("google", "/keys"),
    ("github", "/access_token"),
    ("github", "/user"),
    ("github", "/user/emails"),
    ("microsoft", "/token"),
    ("microsoft", "/keys"),
]


@pytest.mark.parametrize(
    ("name", "step", "outage"),
    [
        *((name, step, "down") for name, step in STEPS),
        *(("google", "/token", outage) for outage in OUTAGES if outage != "down"),
        ("github", "/user/emails", "oversized"),
    ],
)
async def test_a_provider_that_fails_is_no_fault_of_the_persons(
    visitor: Visitor, name: str, step: str, outage: str
) -> None:
    """They can try again; until then nothing of what came is believed."""
    visitor.idp.be(outage={step: outage})

    assert await told(await visitor.sign_in(name), 502) == UNAVAILABLE
    await check_signed_out(visitor)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step"), [STEPS[0], *(pytest.param(*step, marks=only_full) for step in STEPS[1:])]
)
async def test_a_provider_that_drips_is_not_waited_for(
    visitor: Visitor, name: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.access.sign_in.exchange.ANSWER_S", LIMIT_S)
    monkeypatch.setattr("service.ci.issuers.key_source.FETCH_S", LIMIT_S)
    visitor.idp.be(outage={step: "slow"})

    assert await told(await visitor.sign_in(name), 502) == UNAVAILABLE


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_configuration_that_cannot_be_had_begins_nothing(
    visitor: Visitor, outage: str
) -> None:
    visitor.idp.be(outage={"/openid-configuration": outage})
    assert await told(await visitor.get(f"{SIGN_IN}/google"), 502) == UNAVAILABLE

    visitor.idp.reset()
    await visitor.start()
    visitor.idp.be(outage={"/openid-configuration": outage})
    visitor.world.clock.advance(hours=2)
    await visitor.start()


# Microsoft's tenants


@pytest.fixture
def several_tenants(settings: Settings, idp: ProviderProcess) -> Settings:
    return idp.known_to(settings, oauth_microsoft_tenant="organizations")


def tenant(idp: ProviderProcess, tid: object, issuer_of: str) -> None:
    """Let the id token name the tenant `tid`, and the issuer that belongs to another."""
    idp.be(claims={"tid": tid, "iss": f"{idp.url}/{issuer_of}/v2.0"})


@pytest.mark.parametrize(
    ("tid", "issuer_of", "status"),
    [
        (TENANT, TENANT, 303),
        (OTHER_TENANT, OTHER_TENANT, 303),
        (OTHER_TENANT, TENANT, 400),
        (TENANT, OTHER_TENANT, 400),
        ("{tenantid}", "{tenantid}", 400),
        ("organizations", "organizations", 400),
        (None, TENANT, 400),
        ("", "", 400),
        (f"{TENANT}/../{TENANT}", f"{TENANT}/../{TENANT}", 400),
        (PERSONAL_TENANT, PERSONAL_TENANT, 400),
    ],
)
async def test_the_issuer_is_that_of_the_persons_tenant(
    several_tenants: Settings, idp: ProviderProcess, tid: object, issuer_of: str, status: int
) -> None:
    """Where several tenants may sign in there is no one issuer, but still one for each person."""
    own = elsewhere(several_tenants, several_tenants.data_dir.parent / "several")
    async with open_visit(own, idp) as visitor:
        await visitor.allow_domain(idp="microsoft")
        tenant(idp, tid, issuer_of)

        assert (await visitor.sign_in("microsoft")).status_code == status


async def test_one_subject_in_two_tenants_is_two_people(
    several_tenants: Settings, idp: ProviderProcess
) -> None:
    """A subject means something within its issuer alone."""
    own = elsewhere(several_tenants, several_tenants.data_dir.parent / "several")
    async with open_visit(own, idp) as visitor:
        await visitor.invite(idp="microsoft")
        tenant(idp, TENANT, TENANT)
        assert (await visitor.sign_in("microsoft")).status_code == 303
        tenant(idp, OTHER_TENANT, OTHER_TENANT)

        await told(await visitor.sign_in("microsoft"), 403)


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"xms_edov": True}, 303),
        ({"xms_edov": 1}, 303),
        ({"xms_edov": "1"}, 303),
        ({"xms_edov": False}, 403),
        ({"xms_edov": 0}, 403),
        ({"xms_edov": "0"}, 403),
        ({"xms_edov": ["1"]}, 403),
        ({"xms_edov": None, "email_verified": True}, 403),
    ],
    ids=str,
)
async def test_microsoft_vouches_for_an_address_in_one_way(
    visitor: Visitor, claims: dict[str, Any], status: int
) -> None:
    """The administrator of any tenant can write any address into an account there."""
    visitor.idp.be(claims=claims)

    assert (await visitor.sign_in("microsoft")).status_code == status


# Floods, and what is written down


async def test_attempts_are_limited_by_address(visitor: Visitor) -> None:
    for _ in range(PER_ADDRESS_MAX):
        await visitor.start()

    answer = await visitor.get(f"{SIGN_IN}/google")

    assert await told(answer, 429) == "Too many attempts to sign in: wait a minute."
    assert answer.headers["retry-after"] == "60"
    visitor.world.clock.advance(seconds=60)
    await visitor.start()


async def test_attempts_are_limited_in_all(visitor: Visitor, clock: SettableClock) -> None:
    attempts = visitor.world.services.sign_in.attempts
    for number in range(TOTAL_MAX):
        attempts.count(f"10.0.{number // 256}.{number % 256}")

    assert (await visitor.get(f"{SIGN_IN}/google")).status_code == 429


async def test_no_secret_of_a_sign_in_is_kept_or_logged(
    visitor: Visitor, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    seen: set[str] = {CLIENT_SECRET}
    for state in ({}, {"claims": {"nonce": "wrong"}}, {"outage": {"/token": "down"}}):
        visitor.idp.reset()
        visitor.idp.be(**state)
        back = await visitor.begin()
        seen |= {*back.values(), visitor.cookies["sign_in"]}
        await visitor.end(back)
        await visitor.end(back)
    seen.add(visitor.cookies.get(SESSION_COOKIE, CLIENT_SECRET))

    captured = capfd.readouterr()
    stored = stored_bytes(visitor.world.services.settings.data_dir)
    logged = captured.out + captured.err + caplog.text
    assert "/admin/ui/sign-in/google/callback" in logged
    assert [secret for secret in seen if secret in logged] == []
    assert [secret for secret in seen if secret.encode() in stored] == []
