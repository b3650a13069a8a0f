"""Which published keys may verify: each judged for itself, only by what it is."""

import base64
import json
import math
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from service.ci.issuers.jwks import KEYS_MAX, KeyFault, parse_jwks
from tests.issuers.issuer import as_json, ec_key, public_jwk, rsa_key

PINNED = ("RS256", "ES256")
GOOD = public_jwk(rsa_key("good"))
_MODULUS_2048 = rsa_key("good").public_key.public_numbers().n


def number(value: int) -> str:
    """`value` as a JWK writes it."""
    raw = value.to_bytes((value.bit_length() + 7) // 8)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def curve_key(curve: str) -> dict[str, Any]:
    """The public JWK of a new key on `curve`."""
    kind = OKPKey if curve.startswith(("Ed", "X")) else ECKey
    return public_jwk(kind.generate_key(curve, parameters={"kid": "tried"}))


def tried(**changes: Any) -> dict[str, Any]:
    """A good RSA key called `tried`, but for `changes`."""
    return public_jwk(rsa_key("good"), **{"kid": "tried"} | changes)


def why_refused(jwk: dict[str, Any], *pinned: str) -> str:
    """Why `jwk`, called `tried`, may not verify; the good key beside it must."""
    keys = parse_jwks(as_json({"keys": [jwk, GOOD]}), pinned or PINNED)
    assert list(keys.by_kid) == ["good"]
    assert list(keys.refused) == ["tried"]
    assert keys.fault is None
    return keys.refused["tried"].removeprefix("key 'tried' may not verify: ")


@pytest.mark.parametrize(
    ("jwk", "why"),
    [
        (tried(use="enc"), "its use is not sig"),
        (tried(use=None), "its use is not sig"),
        (tried(key_ops=["encrypt"]), "its key_ops do not have verify"),
        (tried(key_ops="verify"), "its key_ops do not have verify"),
        (tried(kty="QUANTUM", alg=...), "kty 'QUANTUM' is not for ES256 or RS256"),
        (tried(kty=...), "alg 'RS256' is not for ES256 or RS256"),
        (tried(kty=["RSA"], alg=...), "kty ['RSA'] is not for ES256 or RS256"),
        (tried(alg="RS512"), "kty 'RSA', alg 'RS512' is not for ES256 or RS256"),
        (tried(alg="RSA-OAEP"), "kty 'RSA', alg 'RSA-OAEP' is not for ES256 or RS256"),
        (tried(alg="ES256"), "kty 'RSA', alg 'ES256' is not for ES256 or RS256"),
        (tried(alg=None), "kty 'RSA', alg None is not for ES256 or RS256"),
        (tried(n=...), "not all of n, e are there as strings"),
        (tried(n=65537), "not all of n, e are there as strings"),
        (tried(e=["AQAB"]), "not all of n, e are there as strings"),
    ],
)
def test_a_key_that_is_not_for_this_is_refused_and_the_good_one_stays(jwk, why):
    assert why_refused(jwk) == why


@pytest.mark.parametrize("exponent", [1, 2, 65536, 2**64 + 1])
def test_an_rsa_exponent_that_proves_nothing_or_takes_long_is_refused(exponent):
    """With 1 any signature holds; an even one is invalid; a long one costs time."""
    assert why_refused(tried(e=number(exponent))) == (
        "its exponent is not odd, at least 3 and small"
    )


@pytest.mark.parametrize(
    ("modulus", "bits"),
    [
        (_MODULUS_2048 >> 1 | 1, 2047),
        (_MODULUS_2048 >> 1024 | 1, 1024),
        (2**8192 + 1, 8193),
        (2**100_000 + 1, 100_001),
        (_MODULUS_2048 - 1, 2048),
        (0, 0),
    ],
    ids=["a bit short", "short", "long", "very long", "even", "none"],
)
def test_an_rsa_modulus_out_of_bounds_is_refused(modulus, bits):
    """Short ones can be factored, long ones are slow, even ones are no product of primes."""
    jwk = tried(n=number(modulus) or "AA")

    assert why_refused(jwk) == f"its modulus of {bits} bits is too weak, too slow or even"


@pytest.mark.parametrize("bits", [2048, 3072, 8192])
def test_an_rsa_modulus_within_bounds_is_taken(bits):
    keys = parse_jwks(as_json({"keys": [tried(n=number(2 ** (bits - 1) + 1))]}), PINNED)

    assert keys.by_kid["tried"].algorithms == {"RS256"}


def of_faulty_generator(bits: int) -> int:
    """A number as Infineon's library made its primes: k * M + 65537 ** a, of so many bits."""
    primorial = math.prod(n for n in range(2, 702) if all(n % d for d in range(2, n)))
    least = 2 ** (bits - 1)
    return (least // primorial + 1) * primorial + pow(65537, 4_711 * bits, primorial)


@pytest.mark.parametrize("bits", [1024, 2048])
def test_a_modulus_of_the_faulty_generator_is_refused(bits):
    """ROCA (CVE-2017-15361): the private key can be computed from the public one."""
    modulus = of_faulty_generator(bits) * of_faulty_generator(bits + 1)

    assert why_refused(tried(n=number(modulus))).endswith("(ROCA, CVE-2017-15361)")
    assert (
        "kept"
        in parse_jwks(
            as_json({"keys": [tried(kid="kept", n=number(modulus + 2)), GOOD]}), PINNED
        ).by_kid
    )


@pytest.mark.parametrize(
    "coded",
    ["", "A", "not base64!", "AQAB=", "AQ+B", "AR", "\u00e4"],
)
def test_a_member_that_is_not_base64url_is_refused(coded):
    assert why_refused(tried(e=coded)).startswith("it is damaged: ")


@pytest.mark.parametrize(
    ("curve", "algorithm"), [("P-256", "ES256"), ("P-384", "ES384"), ("Ed25519", "Ed25519")]
)
def test_a_curve_is_for_its_one_algorithm(curve, algorithm):
    """ES256 is defined on P-256 and nowhere else (RFC 7518, 3.4)."""
    raw = as_json({"keys": [curve_key(curve)]})

    keys = parse_jwks(raw, ["RS256", "PS256", "ES256", "ES384", "Ed25519"])
    assert keys.by_kid["tried"].algorithms == {algorithm}
    others = {"RS256", "PS256", "ES256", "ES384", "Ed25519"} - {algorithm}
    with pytest.raises(KeyFault, match=curve):
        parse_jwks(raw, others)


@pytest.mark.parametrize("curve", ["P-521", "secp256k1", "Ed448", "X25519"])
def test_a_curve_no_algorithm_here_is_on_is_refused(curve):
    pinned = ("RS256", "ES256", "ES384", "Ed25519")

    assert f"crv '{curve}' is not for" in why_refused(curve_key(curve), *pinned)


def test_a_point_off_its_curve_is_refused():
    """Invalid-curve attacks use such points."""
    good = curve_key("P-256")
    off = good | {"y": number(int.from_bytes(base64.urlsafe_b64decode(good["y"] + "=")) ^ 1)}

    assert why_refused(off).startswith("it is damaged: ")
    assert why_refused(good | {"x": 7}) == "not all of crv, x, y are there as strings"


def test_an_edwards_key_of_the_wrong_length_is_refused():
    assert why_refused(curve_key("Ed25519") | {"x": "AAAA"}, "RS256", "Ed25519").startswith(
        "it is damaged: "
    )


def test_a_symmetric_key_is_never_imported():
    """It signs as well as verifies: published, everyone could sign."""
    secret = OctKey.generate_key(256, parameters={"kid": "tried", "alg": "RS256"}).as_dict()

    assert why_refused(secret) == "kty 'oct', alg 'RS256' is not for ES256 or RS256"
    assert why_refused(secret | {"alg": "HS256"}, "HS256", "RS256").startswith("kty 'oct'")


def test_a_key_takes_the_pinned_algorithms_of_its_kind():
    pinned = ["RS256", "PS256", "ES256"]
    raw = as_json({"keys": [tried(alg=...), public_jwk(rsa_key("good"), alg="PS256")]})

    keys = parse_jwks(raw, pinned)

    assert keys.by_kid["tried"].algorithms == {"RS256", "PS256"}
    assert keys.by_kid["good"].algorithms == {"PS256"}


def test_a_private_part_that_is_published_is_not_read():
    """Another's leaked key must not become a secret here."""
    raw = as_json({"keys": [rsa_key("good").as_dict(private=True)]})

    key = parse_jwks(raw, PINNED).by_kid["good"].key
    assert isinstance(key, RSAKey)
    assert not key.is_private
    assert set(key.as_dict()) == {"kty", "n", "e"}


@pytest.mark.parametrize("twin", [GOOD, public_jwk(rsa_key("twin"), kid="good", use="enc")])
def test_two_keys_with_one_kid_are_both_refused(twin):
    """A token names one key, and nothing says which of the two."""
    other = public_jwk(ec_key("other"))

    keys = parse_jwks(as_json({"keys": [GOOD, other, twin]}), PINNED)

    assert list(keys.by_kid) == ["other"]
    assert keys.refused == {
        "good": "key 'good' may not verify: its kid is published more than once"
    }


@pytest.mark.parametrize(
    "entry", [tried(kid=...), tried(kid=""), tried(kid=7), tried(kid=None), "a key", None, []]
)
def test_what_no_token_could_name_is_passed_over(entry):
    """Without a kid no token can refer to it."""
    keys = parse_jwks(as_json({"keys": [entry, GOOD]}), PINNED)

    assert (list(keys.by_kid), keys.refused) == (["good"], {})


def test_no_more_keys_are_looked_at_than_the_limit():
    """Keys behind it still invalidate the name they share."""
    fill = [public_jwk(ec_key("fill"), kid=f"fill-{index}") for index in range(KEYS_MAX - 1)]
    late = public_jwk(rsa_key("late"))

    keys = parse_jwks(as_json({"keys": [GOOD, *fill, late]}), PINNED)
    assert len(keys.by_kid) == KEYS_MAX
    assert "late" not in keys.by_kid

    keys = parse_jwks(as_json({"keys": [GOOD, *fill, GOOD]}), PINNED)
    assert list(keys.refused) == ["good"]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not strict JSON"),
        (b"<html></html>", "not strict JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "no list of keys"),
        (b'{"keys": {}}', "no list of keys"),
        (b'{"keys": []}', "no usable key published"),
        (b'{"keys": [NaN]}', "not strict JSON"),
        (b'{"keys": [], "keys": []}', "not strict JSON"),
        (as_json({"keys": [GOOD]})[:-1] + b', "keys": []}', "not strict JSON"),
        (as_json({"keys": [GOOD]}).replace(b'"e":', b'"e":"AQAB","e":'), "not strict JSON"),
        (b"\xef\xbb\xbf" + as_json({"keys": [GOOD]}), "not strict JSON"),
        (json.dumps({"keys": [GOOD]}).encode("utf-16"), "not strict JSON"),
        (b'{"keys": ' + b"[" * 2000 + b"]" * 2000 + b"}", "nested deeper|not strict JSON"),
        (as_json({"keys": [GOOD | {"x": 10**40}]}), "not strict JSON"),
        (as_json({"keys": [GOOD | {"kid": "\ud800"}]}), "half of a surrogate pair"),
        (as_json({"keys": [tried(use="enc")]}), "key 'tried' may not verify: its use is not sig"),
    ],
)
def test_what_holds_no_usable_key_is_a_fault(raw, why):
    """An empty set must not replace the keys that are cached."""
    with pytest.raises(KeyFault, match=why):
        parse_jwks(raw, PINNED)


def test_a_key_set_nested_too_deeply_is_a_fault():
    """Code that walks it would recurse as deeply."""
    deep = GOOD | {"x5c": [[[[[[["deep"]]]]]]]}

    with pytest.raises(KeyFault, match="nested deeper than 8 levels"):
        parse_jwks(as_json({"keys": [deep]}), PINNED)
    assert parse_jwks(as_json({"keys": [GOOD | {"x5c": [[[[["deep"]]]]]}]}), PINNED).by_kid
