"""What is said of a token: which rule failed, what it wanted, and where the texts part."""

from typing import Any

import pytest
import pytest_asyncio

from service.trust.explain.evaluation import RULE_NAMES
from service.trust.explain.text_diff import SHOWN_CHARS_MAX
from tests.conftest import ISSUER, START, World
from tests.issuers.issuer import Issuer, rsa_key
from tests.service.trust.explain.explaining import (
    Keys,
    explained,
    explained_claims,
    explained_token,
    failing,
    texts,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAIN = "repo:acme/payments:ref:refs/heads/main"
NOW = int(START.timestamp())
OF_CLAIMS = [
    ({"iss": "https://other.example"}, 1, "unbound_issuer", None),
    ({"aud": "another-service"}, 2, "bad_audience", None),
    ({"sub": ...}, 3, "unbound_oidc_subject", "missing_sub"),
    ({"sub": "repo:acme/other:ref:refs/heads/main"}, 3, "unbound_oidc_subject", None),
    ({"repository_id": ...}, 4, "missing_repository_id", None),
    ({"repository_id": "5"}, 4, "unbound_oidc_subject", None),
    ({"event_name": "release"}, 5, "unbound_oidc_subject", "event_name_not_allowed"),
    ({"event_name": ...}, 5, "unbound_oidc_subject", "event_name_not_allowed"),
    ({"exp": NOW}, 7, "expired_or_not_yet_valid", None),
    ({"iat": NOW + 120}, 7, "expired_or_not_yet_valid", None),
    ({"nbf": NOW + 120}, 7, "expired_or_not_yet_valid", None),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bound(shared_world: World) -> World:
    """A world in which acme trusts the good token; nothing here changes that."""
    await shared_world.bind()
    return shared_world


def statuses(explanation: dict[str, Any]) -> list[str]:
    return [rule["status"] for rule in explanation["rules"]]


@pytest.mark.parametrize(("wrong", "rule", "code", "detail"), OF_CLAIMS)
async def test_one_wrong_claim_fails_its_rule_and_no_other(bound, wrong, rule, code, detail):
    said = await explained_claims(bound, Issuer(), **wrong)

    assert (said["passes"], said["code"], said["detail"]) == (False, code, detail)
    assert failing(said)["rule"] == rule
    assert failing(said)["name"] == RULE_NAMES[rule - 1]
    assert failing(said)["note"]
    passed = ["passed"] * (rule - 1)
    if rule == 7:
        passed[5] = "not_reached"
    assert statuses(said) == [*passed, "failed", *["not_reached"] * (7 - rule)]
    assert said["signatureChecked"] is False


@pytest.mark.parametrize(("wrong", "rule", "code", "detail"), OF_CLAIMS)
async def test_a_signed_token_fails_the_same_rule_as_its_claims(bound, wrong, rule, code, detail):
    """And its issuer is asked for keys only when the rules about trust have held."""
    issuer = Issuer()
    keys = Keys(issuer)

    said = await explained_token(bound, issuer.sign(**wrong), keys)

    assert (said.passes, said.code, said.detail) == (False, code, detail)
    assert [one.rule for one in said.rules if one.status == "failed"] == [rule]
    assert keys.asked == (1 if rule == 7 else 0)
    assert said.signature_checked == (rule == 7)


async def test_good_claims_pass_but_for_the_signature_they_lack(bound):
    said = await explained_claims(bound, Issuer())

    assert (said["passes"], said["code"], said["signatureChecked"]) == (True, None, False)
    assert statuses(said) == [*["passed"] * 5, "not_reached", "passed"]
    assert "no signature" in said["rules"][5]["note"]
    assert said["binding"].startswith("obind_")
    assert (said["nearest"], said["proposal"]) == ([], None)


async def test_a_good_token_passes_all_seven_rules(bound):
    issuer = Issuer()

    said = await explained_token(bound, issuer.sign(), Keys(issuer))

    assert said.passes
    assert said.signature_checked
    assert [rule.status for rule in said.rules] == ["passed"] * 7


@pytest.mark.parametrize(
    ("header", "fault", "reason", "is_asked"),
    [
        ({"kid": "unknown"}, None, "'unknown' is not published", True),
        ({"alg": "none"}, None, "alg 'none' is not one of RS256", False),
        ({"kid": ...}, None, "no kid", False),
        ({"crit": ["b64"]}, None, "crit in the header", False),
        ({}, "the issuer did not answer", "the issuer did not answer", True),
    ],
)
async def test_a_signature_that_does_not_hold_is_explained_in_words(
    bound, header, fault, reason, is_asked
):
    """Which of key, algorithm and issuer is at fault decides who has to do something."""
    issuer = Issuer()
    keys = Keys(issuer, fault)

    said = await explained_token(bound, issuer.sign(header=header), keys)

    assert (said.code, said.passes, said.signature_checked) == ("signature_invalid", False, False)
    assert said.rules[5].status == "failed"
    assert reason in said.rules[5].note
    assert reason in said.reason
    assert keys.asked == is_asked
    assert (said.nearest, said.proposal) == ([], None)


async def test_a_token_of_another_key_fails_the_sixth_rule(bound):
    """It has the good key's kid and claims that fit."""
    forger = Issuer(key=rsa_key("forger"))

    said = await explained_token(bound, forger.sign(header={"kid": "first"}), Keys(Issuer()))

    assert (said.code, said.rules[5].status) == ("signature_invalid", "failed")


@pytest.mark.parametrize(
    ("token", "code", "reason"),
    [
        ("", "missing_token", "nothing was sent"),
        (" \t", "missing_token", "nothing was sent"),
        ("Bearer abc", "malformed_jwt", "three base64url parts"),
        ("a.b", "malformed_jwt", "three base64url parts"),
        ("a" * 20_000, "malformed_jwt", "longer than 16384"),
        ("\ud800.\x1b[31m.", "malformed_jwt", "three base64url parts"),
    ],
)
async def test_what_is_no_token_reaches_no_rule(bound, token, code, reason):
    said = await explained(bound, token=token)

    assert (said["code"], said["detail"], said["passes"]) == (code, None, False)
    assert statuses(said) == ["not_reached"] * 7
    assert reason in said["reason"]
    assert (said["nearest"], said["proposal"]) == ([], None)


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "\ud800"},
        {"a": [[[[[[[[[1]]]]]]]]]},
        {"exp": 10**40},
        {"exp": 10**70},
        {"sub": "x" * 20_000},
    ],
)
async def test_claims_that_no_token_can_carry_are_malformed(bound, claims):
    """They go the way of a token, so that both are judged alike."""
    said = await explained(bound, claims=claims)

    assert said["code"] == "malformed_jwt"
    assert statuses(said) == ["not_reached"] * 7


@pytest.mark.parametrize(
    ("found", "at", "expected", "got", "hint"),
    [
        ("Repo:acme/payments:ref:refs/heads/main", 0, "U+0072", "U+0052", "upper and lower case"),
        (f"{MAIN}/", 38, None, "U+002F", "a slash at the end"),
        (f"{MAIN} ", 38, None, "U+0020", "white space"),
        (f" {MAIN}", 0, "U+0072", "U+0020", "white space"),
        (MAIN[:-1], 37, "U+006E", None, None),
        (MAIN.replace("pay", "p\u0430y"), 11, "U+0061", "U+0430 CYRILLIC", "looks like"),
        (MAIN.replace("pay", "pay\u200b"), 13, "U+006D", "U+200B ZERO WIDTH", "invisible"),
        (MAIN.replace("acme/", "acme%2F"), 9, "U+002F", "U+0025", "percent-encoded"),
        (MAIN.replace("main", "other"), 34, "U+006D", "U+006F", None),
    ],
)
async def test_a_subject_shows_the_character_that_differs(bound, found, at, expected, got, hint):
    """By its name: what looks the same in a terminal does not look the same here."""
    said = await explained_claims(bound, Issuer(), sub=found)

    difference = failing(said)["difference"]
    assert difference["comparedWith"] == failing(said)["expected"] == MAIN
    assert difference["at"] == at
    assert (difference["expectedCodePoint"] or "").startswith(expected or "")
    assert (difference["foundCodePoint"] or "").startswith(got or "")
    assert (difference["expected"], difference["found"]) == (MAIN[at : at + 1], found[at : at + 1])
    assert (hint or "") in (difference["hint"] or "")
    assert (difference["hint"] is None) == (hint is None)


@pytest.mark.parametrize("sub", ["repo:acme/payments:environment:production", "org/1/project/2"])
async def test_subjects_that_are_not_close_are_not_compared_by_character(bound, sub):
    failed = failing(await explained_claims(bound, Issuer(), sub=sub))

    assert (failed["expected"], failed["found"], failed["difference"]) == (MAIN, sub, None)


async def test_another_service_is_named_without_comparing_characters(bound):
    failed = failing(await explained_claims(bound, Issuer(), aud="sigstore"))

    assert failed["difference"] is None
    assert failed["note"].startswith("The token was made for another service")


async def test_other_words_for_events_are_not_compared_by_character(bound):
    typo = failing(await explained_claims(bound, Issuer(), event_name="psuh"))
    other = failing(await explained_claims(bound, Issuer(), event_name="release"))

    assert (typo["rule"], typo["difference"]["at"]) == (5, 1)
    assert (other["rule"], other["difference"]) == (5, None)


@pytest.mark.parametrize(
    ("wrong", "expected", "found", "hint"),
    [
        ({"iss": f"{ISSUER}/"}, [ISSUER], f"{ISSUER}/", "a slash at the end"),
        ({"aud": "Countersign"}, "countersign", "Countersign", "upper and lower case"),
        ({"aud": ["countersigN"]}, "countersign", ["countersigN"], "upper and lower case"),
    ],
)
async def test_issuer_and_audience_are_compared_too(bound, wrong, expected, found, hint):
    """A slash too many is the most common fault of an issuer."""
    failed = failing(await explained_claims(bound, Issuer(), **wrong))

    assert (failed["expected"], failed["found"]) == (expected, found)
    assert hint in failed["difference"]["hint"]


@pytest.mark.parametrize(
    ("times", "off", "note"),
    [
        ({"exp": NOW - 60}, ["exp"], "expired 60.123456 s ago"),
        ({"exp": ...}, ["exp"], "exp is missing"),
        ({"exp": "soon"}, ["exp"], "exp is no instant"),
        ({"exp": True}, ["exp"], "exp is no instant"),
        ({"nbf": NOW + 120}, ["nbf"], "nbf is 119.877 s ahead"),
        ({"iat": None}, ["iat"], "iat is no instant"),
        ({"exp": NOW, "iat": NOW + 999}, ["exp", "iat"], "iat is 998.877 s ahead"),
        ({"exp": 1e308, "nbf": NOW + 999}, ["nbf"], "nbf is"),
    ],
)
async def test_times_are_shown_as_instants_beside_now(bound, times, off, note):
    """With by how much they are off: a job that waited, or a clock that is wrong."""
    said = await explained_claims(bound, Issuer(), **times)

    assert [one["claim"] for one in said["times"] if not one["holds"]] == off
    assert note.replace("60.123456", "60.123") in failing(said)["note"]
    assert said["now"] == "2026-03-04T12:00:00.123Z"
    iat = next(one for one in said["times"] if one["claim"] == "iat")
    if "iat" not in times:
        assert iat == {
            "claim": "iat",
            "found": str(NOW),
            "instant": "2026-03-04T12:00:00.000Z",
            "aheadS": -0.123,
            "holds": True,
        }


@pytest.mark.parametrize("hostile", ["\r\nx: y", "\x1b[2J", "<script>", "'\";--", "x" * 10_000])
@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "repository_id", "event_name", "exp"])
async def test_hostile_values_are_shown_within_a_bound(bound, hostile, claim):
    said = await explained_claims(bound, Issuer(), **{claim: hostile})

    assert failing(said)
    assert all(len(text) <= SHOWN_CHARS_MAX + 100 for text in texts(said))


async def test_a_long_list_of_audiences_is_cut(bound):
    said = await explained_claims(bound, Issuer(), aud=["a"] * 1000)

    assert failing(said)["found"] == [*["a"] * 16, "… and 984 more"]
