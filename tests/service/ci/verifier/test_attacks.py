"""Every known way to get past a token check, each with the code it must be rejected with.

Each token is good but for what is named. They come in as requests do, through the public door.
"""

import json
from typing import Any

import pytest
import pytest_asyncio
from joserfc.jwk import ECKey, Key, OctKey

from tests.issuers.issuer import Issuer, as_json, compact, rsa_key, segment
from tests.service.gates import TRUSTED, Gate

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = Issuer()
GOOD = JOB.sign()
HEADER, PAYLOAD, SIGNATURE = GOOD.split(".")
EXACTLY = JOB.now.timestamp()
NOW = int(EXACTLY)
FLATTENED = {"protected": HEADER, "signature": SIGNATURE}
ATTACKER: Key = rsa_key("attacker")

MISSING = ("missing_token", None)
MALFORMED = ("malformed_jwt", None)
ISSUER_UNBOUND = ("unbound_issuer", None)
AUDIENCE = ("bad_audience", None)
UNBOUND = ("unbound_oidc_subject", None)
NO_SUB = ("unbound_oidc_subject", "missing_sub")
NO_REPOSITORY = ("missing_repository_id", None)
EVENT = ("unbound_oidc_subject", "event_name_not_allowed")
SIGNATURE_BAD = ("signature_invalid", None)
TIME = ("expired_or_not_yet_valid", None)


def with_payload(payload: bytes) -> str:
    return JOB.sign_raw(as_json(JOB.header()), payload)


def with_header(header: bytes) -> str:
    return JOB.sign_raw(header, as_json(JOB.claims()))


def without_end(value: dict[str, Any]) -> bytes:
    return as_json(value)[:-1]


def stray(part: str) -> str:
    """`part`, whose length leaves bits over, with the last of them set."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert len(part) % 4 in {2, 3}
    return part[:-1] + alphabet[alphabet.index(part[-1]) | 1]


async def test_the_good_token_is_trusted(shared_gate: Gate):
    assert await shared_gate.judge(GOOD) is TRUSTED


async def test_no_header_is_no_event(shared_gate: Gate):
    assert await shared_gate.judge() is TRUSTED


@pytest.mark.parametrize("value", ["", " ", "   ", "\t", " \t "])
async def test_an_empty_header_is_a_missing_token(shared_gate: Gate, value: str):
    """A job sends it if its variable is empty."""
    assert await shared_gate.judge(value) == MISSING


NO_COMPACT_TOKEN = {
    "twice": (GOOD, GOOD),
    "twice, one empty": (GOOD, ""),
    "joined": (f"{GOOD}, {GOOD}",),
    "bearer": (f"Bearer {GOOD}",),
    "one part": (HEADER,),
    "two parts": (f"{HEADER}.{PAYLOAD}",),
    "four parts": (f"{GOOD}.{SIGNATURE}",),
    "five parts": (f"{GOOD}.{SIGNATURE}.{SIGNATURE}",),
    "no header": (f".{PAYLOAD}.{SIGNATURE}",),
    "no payload": (f"{HEADER}..{SIGNATURE}",),
    "flattened": (json.dumps(FLATTENED | {"payload": PAYLOAD}),),
    "general": (json.dumps({"payload": PAYLOAD, "signatures": [FLATTENED]}),),
}


@pytest.mark.parametrize("values", NO_COMPACT_TOKEN.values(), ids=NO_COMPACT_TOKEN)
async def test_what_is_not_one_compact_token_is_malformed(
    shared_gate: Gate, values: tuple[str, ...]
):
    assert await shared_gate.judge(*values) == MALFORMED


async def test_an_encrypted_token_is_malformed(shared_gate: Gate):
    """A JWE has five parts."""
    parts = [segment(as_json({"alg": "RSA-OAEP", "enc": "A256GCM"})), *("AAAA",) * 4]
    assert await shared_gate.judge(".".join(parts)) == MALFORMED


OTHER_SPELLINGS = {
    "padded header": f"{HEADER}=.{PAYLOAD}.{SIGNATURE}",
    "padded payload": f"{HEADER}.{PAYLOAD}==.{SIGNATURE}",
    "padded signature": f"{GOOD}==",
    "plus": f"{HEADER}.{PAYLOAD}.+{SIGNATURE[1:]}",
    "slash": f"{HEADER}.{PAYLOAD}./{SIGNATURE[1:]}",
    "stray bits": f"{HEADER}.{PAYLOAD}.{stray(SIGNATURE)}",
    "space inside": f"{HEADER}.{PAYLOAD[:40]} {PAYLOAD[40:]}.{SIGNATURE}",
    "space after a dot": f"{HEADER}. {PAYLOAD}.{SIGNATURE}",
    "not ASCII": f"{HEADER}.{PAYLOAD}.{SIGNATURE[:-1]}é",
    "a dot too many": f"{HEADER}.{PAYLOAD}.{SIGNATURE}A.",
    "impossible length": f"{HEADER}.{PAYLOAD}.AAAAA",
}


@pytest.mark.parametrize("token", OTHER_SPELLINGS.values(), ids=OTHER_SPELLINGS)
async def test_base64url_has_one_spelling(shared_gate: Gate, token: str):
    """Two spellings of one token would be two tokens to a cache and a log."""
    assert await shared_gate.judge(token) == MALFORMED


@pytest.mark.parametrize("which", [0, 1], ids=["header", "payload"])
async def test_stray_bits_are_malformed_in_every_part(shared_gate: Gate, which: int):
    """The signature is over the stray spelling, so nothing else is wrong."""
    parts = [as_json(JOB.header()), as_json(JOB.claims())]
    while len(segment(parts[which])) % 4 not in {2, 3}:
        parts[which] += b" "
    spelt = [segment(part) for part in parts]
    spelt[which] = stray(spelt[which])
    assert await shared_gate.judge(JOB.sign_input(".".join(spelt))) == MALFORMED


async def test_a_token_over_16_kib_is_malformed(shared_gate: Gate):
    room = 16 * 1024
    fit = next(
        token
        for pad in range(11_000, 12_000)
        if len(token := JOB.sign(pad="x" * pad)) in {room - 1, room}
    )
    assert await shared_gate.judge(fit) is TRUSTED
    assert await shared_gate.judge(JOB.sign(pad="x" * 12_100)) == MALFORMED


async def test_what_is_too_long_is_not_even_decoded(
    shared_gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    """Any sender could cause that work."""
    decoded: list[str] = []
    monkeypatch.setattr("service.ci.verifier.parsing._decode", decoded.append)
    assert await shared_gate.judge(JOB.sign(pad="x" * 12_100)) == MALFORMED
    assert decoded == []


CLAIMS = JOB.claims()
HEAD = JOB.header()
BAD_JSON = {
    "array": lambda value: as_json([value]),
    "string": lambda _: b'"token"',
    "null": lambda _: b"null",
    "empty": lambda _: b" ",
    "utf-16": lambda value: json.dumps(value).encode("utf-16"),
    "byte order mark": lambda value: b"\xef\xbb\xbf" + as_json(value),
    "bad utf-8": lambda value: without_end(value) + b',"x":"\xff\xfe"}',
    "overlong utf-8": lambda value: without_end(value) + b',"x":"\xc0\xaf"}',
    "utf-8 surrogate": lambda value: without_end(value) + b',"x":"\xed\xa0\x80"}',
    "escaped lone surrogate": lambda value: without_end(value) + b',"x":"\\ud800"}',
    "lone surrogate in a name": lambda value: without_end(value) + b',"\\uDC00":1}',
    "duplicate": lambda value: without_end(value) + b',"x":1,"x":1}',
    "duplicate by escape": lambda value: without_end(value) + b',"x":1,"\\u0078":2}',
    "nested duplicate": lambda value: without_end(value) + b',"x":{"y":[{"z":1,"z":2}]}}',
    "NaN": lambda value: without_end(value) + b',"x":NaN}',
    "Infinity": lambda value: without_end(value) + b',"x":Infinity}',
    "-Infinity": lambda value: without_end(value) + b',"x":-Infinity}',
    "1e400": lambda value: without_end(value) + b',"x":1e400}',
    "2000 lists deep": lambda value: (
        without_end(value) + b',"x":' + b"[" * 2000 + b"]" * 2000 + b"}"
    ),
    "2000 objects deep": lambda value: (
        without_end(value) + b',"x":' + b'{"":' * 2000 + b"1" + b"}" * 2001
    ),
    "9 deep": lambda value: without_end(value) + b',"x":' + b"[" * 9 + b"]" * 9 + b"}",
    "5000 digits": lambda value: without_end(value) + b',"x":' + b"9" * 5000 + b"}",
    "33 digits": lambda value: without_end(value) + b',"x":-' + b"9" * 33 + b"}",
    "trailing comma": lambda value: without_end(value) + b",}",
    "more after it": lambda value: as_json(value) + b"{}",
    "control character": lambda value: without_end(value) + b',"x":"\n"}',
    "comment": lambda value: without_end(value) + b"/**/}",
}


@pytest.mark.parametrize("name", BAD_JSON)
async def test_claims_are_one_strict_json_object(shared_gate: Gate, name: str):
    """Two readers could read it in two ways."""
    assert await shared_gate.judge(with_payload(BAD_JSON[name](CLAIMS))) == MALFORMED


@pytest.mark.parametrize("name", BAD_JSON)
async def test_a_header_is_one_strict_json_object(shared_gate: Gate, name: str):
    assert await shared_gate.judge(with_header(BAD_JSON[name](HEAD))) == MALFORMED


async def test_what_is_strict_json_is_taken(shared_gate: Gate):
    more = (
        b',"x":'
        + b"[" * 7
        + b"]" * 7
        + b',"y":'
        + b"9" * 32
        + b',"z":"\\ud83d\\ude00 \xf0\x9f\x98\x80"}'
    )
    assert await shared_gate.judge(with_payload(without_end(CLAIMS) + more)) is TRUSTED


@pytest.mark.parametrize(
    "iss",
    [
        ...,
        None,
        "",
        7,
        ["https://token.actions.githubusercontent.com"],
        {"url": "https://token.actions.githubusercontent.com"},
        "https://token.actions.githubusercontent.com/",
        "https://token.actions.githubusercontent.com ",
        "HTTPS://token.actions.githubusercontent.com",
        "https://Token.actions.githubusercontent.com",
        "http://token.actions.githubusercontent.com",
        "https://token.actions.githubusercontent.com:443",
        "https://token.actions.githubusercontent.com.evil.example",
        "https://token.actions.githubusercontent.com@evil.example",
        "https://t\u043eken.actions.githubusercontent.com",  # a Cyrillic o
        "https://gitlab.com",
    ],
)
async def test_the_issuer_is_compared_exactly(shared_gate: Gate, iss: Any):
    assert await shared_gate.judge(JOB.sign(iss=iss)) == ISSUER_UNBOUND


@pytest.mark.parametrize(
    "aud",
    [
        ...,
        None,
        "",
        [],
        {},
        0,
        True,
        "counter",
        "countersign ",
        "countersign.example",
        "Countersign",
        ["Countersign"],
        ["countersign", "countersign"],
        ["countersign", "another-service"],
        ["another-service", "countersign"],
        [["countersign"]],
        {"countersign": True},
    ],
)
async def test_the_audience_is_this_service_alone(shared_gate: Gate, aud: Any):
    """A token made for another service as well could be replayed by it."""
    assert await shared_gate.judge(JOB.sign(aud=aud)) == AUDIENCE


async def test_a_list_of_this_one_audience_is_fine(shared_gate: Gate):
    """RFC 7519, 4.1.3: `aud` may be a list."""
    assert await shared_gate.judge(JOB.sign(aud=["countersign"])) is TRUSTED


@pytest.mark.parametrize("sub", [..., None, "", 7, True, ["repo:acme/payments"], {"sub": "x"}])
async def test_a_token_without_a_subject_says_so(shared_gate: Gate, sub: Any):
    assert await shared_gate.judge(JOB.sign(sub=sub)) == NO_SUB


@pytest.mark.parametrize(
    "sub",
    [
        "repo:Acme/payments:ref:refs/heads/main",
        "REPO:acme/payments:ref:refs/heads/main",
        "repo:acme/payments:ref:refs/heads/main ",
        "repo:acme/payments:ref:refs/heads/main\x00",
        "repo:acme/payments:ref:refs/heads/mai",
        "repo:acme/payments:ref:refs/heads/*",
        "repo%3Aacme/payments:ref:refs/heads/main",
        "repo:acme%2Fpayments:ref:refs/heads/main",
        "repo:acme@1/payments@123456789:ref:refs/heads/main",
        "repo:\u0430cme/payments:ref:refs/heads/main",  # a Cyrillic a
    ],
)
async def test_the_subject_is_compared_exactly(shared_gate: Gate, sub: str):
    assert await shared_gate.judge(JOB.sign(sub=sub)) == UNBOUND


async def test_normal_forms_are_different_subjects(gate_with_accents: Gate):
    """The bound one is NFC; the same text in NFD is another subject."""
    composed, decomposed = (
        "repo:acme/café:ref:refs/heads/main",
        "repo:acme/cafe\u0301:ref:refs/heads/main",
    )
    assert await gate_with_accents.judge(JOB.sign(sub=composed)) is TRUSTED
    assert await gate_with_accents.judge(JOB.sign(sub=decomposed)) == UNBOUND


@pytest_asyncio.fixture(loop_scope="module")
async def gate_with_accents(shared_gate: Gate) -> Gate:
    found = await shared_gate.world.bindings(state="active")
    sub = "repo:acme/café:ref:refs/heads/main"
    if sub not in {binding["subPattern"] for binding in found}:
        await shared_gate.world.bind(sub_pattern=sub)
    return shared_gate


@pytest.mark.parametrize("name", ["SUB", "Sub", "ſub", "sub ", "su\u200bb"])
async def test_members_that_look_like_sub_are_not(shared_gate: Gate, name: str):
    assert await shared_gate.judge(JOB.sign(**{name: "repo:evil/evil"})) is TRUSTED
    assert await shared_gate.judge(JOB.sign(sub=..., **{name: CLAIMS["sub"]})) == NO_SUB


@pytest.mark.parametrize("repository_id", [..., None, "", True, [], ["123456789"], {}, 1.5])
async def test_a_missing_repository_id_has_its_code(shared_gate: Gate, repository_id: Any):
    lacking = {"repository_id": repository_id}
    assert await shared_gate.judge(JOB.sign(**lacking)) == NO_REPOSITORY
    assert await shared_gate.judge(JOB.sign(sub="repo:evil/evil", **lacking)) == UNBOUND


@pytest.mark.parametrize(
    "repository_id",
    ["987654321", "0123456789", "123456789 ", "+123456789", -123456789, "12345678٩"],
)
async def test_the_same_name_with_another_repository_is_unbound(
    shared_gate: Gate, repository_id: Any
):
    """A name can be taken over, an id cannot."""
    assert await shared_gate.judge(JOB.sign(repository_id=repository_id)) == UNBOUND


async def test_an_integer_is_a_repository_id_too(shared_gate: Gate):
    """Some issuers write ids as numbers."""
    assert await shared_gate.judge(JOB.sign(repository_id=123456789)) is TRUSTED


@pytest.mark.parametrize("event", [..., None, "", "Push", "push ", "pull_request", ["push"], True])
async def test_an_event_that_is_not_listed_is_not_allowed(shared_gate: Gate, event: Any):
    assert await shared_gate.judge(JOB.sign(event_name=event)) == EVENT


@pytest.mark.parametrize("alg", ["none", "None", "NoNe", "NONE", "", None, ..., 5, ["RS256"]])
async def test_no_algorithm_is_no_signature(shared_gate: Gate, alg: Any):
    header, payload = as_json(JOB.header(alg=alg)), as_json(CLAIMS)
    assert await shared_gate.judge(JOB.sign_raw(header, payload)) == SIGNATURE_BAD
    assert await shared_gate.judge(compact(header, payload)) == SIGNATURE_BAD


async def test_an_empty_signature_is_invalid(shared_gate: Gate):
    assert await shared_gate.judge(f"{HEADER}.{PAYLOAD}.") == SIGNATURE_BAD


@pytest.mark.parametrize("form", ["PEM", "DER", "n"])
async def test_a_public_key_is_no_secret(shared_gate: Gate, form: str):
    """HS256 keyed with what everyone can download."""
    public = rsa_key("first")
    secrets = {
        "PEM": public.as_pem(private=False),
        "DER": public.as_der(private=False),
        "n": str(public.as_dict(private=False)["n"]).encode(),
    }
    forged = JOB.sign_with_secret(secrets[form])
    assert await shared_gate.judge(forged) == SIGNATURE_BAD


@pytest.mark.parametrize("alg", ["RS384", "RS512", "PS256", "PS384", "PS512"])
async def test_an_algorithm_that_is_not_pinned_is_invalid(shared_gate: Gate, alg: str):
    assert await shared_gate.judge(Issuer(alg=alg).sign()) == SIGNATURE_BAD


@pytest.mark.parametrize("alg", ["EdDSA", "ES256", "RS256 ", "rs256", "ES256K", "Ed25519"])
async def test_the_name_of_another_algorithm_is_invalid(shared_gate: Gate, alg: str):
    assert await shared_gate.judge(JOB.sign(header={"alg": alg})) == SIGNATURE_BAD


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256"])
async def test_a_token_does_not_bring_its_own_key(shared_gate: Gate, name: str):
    value = {
        "jwk": ATTACKER.as_dict(private=False),
        "jku": "https://evil.example/jwks",
        "x5u": "https://evil.example/chain.pem",
        "x5c": [segment(ATTACKER.as_der(private=False))],
        "x5t": segment(b"0" * 20),
        "x5t#S256": segment(b"0" * 32),
    }[name]
    forger = Issuer(key=ATTACKER)
    assert await shared_gate.judge(GOOD) is TRUSTED  # so that the issuer's keys are here
    before = list(shared_gate.issuer.requests)
    for kid in ("first", ...):
        forged = forger.sign(header={name: value, "kid": kid})
        assert await shared_gate.judge(forged) == SIGNATURE_BAD
    assert shared_gate.issuer.requests == before


@pytest.mark.parametrize(
    "kid",
    [
        ...,
        "",
        None,
        7,
        True,
        ["first"],
        {"kid": "first"},
        "FIRST",
        "first ",
        "../../../../dev/null",
        "/proc/self/environ",
        "first' OR '1'='1",
        "'; DROP TABLE bindings; --",
        "https://evil.example/key",
        "first\x00",
        "$(id)",
    ],
)
async def test_a_kid_is_a_name_and_nothing_else(shared_gate: Gate, kid: Any):
    assert await shared_gate.judge(JOB.sign(header={"kid": kid})) == SIGNATURE_BAD


@pytest.mark.parametrize(
    "more",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": "exp"},
        {"crit": None},
        {"crit": ["b64"], "b64": False},
        {"b64": False},
        {"b64": True},
        {"crit": ["x"], "x": 1},
    ],
    ids=json.dumps,
)
async def test_extensions_are_not_understood(shared_gate: Gate, more: dict[str, Any]):
    """What must be understood and is not makes a signature invalid (RFC 7515, 4.1.11)."""
    assert await shared_gate.judge(JOB.sign(header=more)) == SIGNATURE_BAD


@pytest.mark.parametrize("part", [0, 1, 2], ids=["header", "payload", "signature"])
async def test_a_changed_byte_breaks_the_signature(shared_gate: Gate, part: int):
    parts = [
        segment(as_json(JOB.header()).replace(b"JWT", b"JWS")),
        segment(as_json(JOB.claims()).replace(b'"acme"', b'"evil"')),
        ("A" if SIGNATURE[0] != "A" else "B") + SIGNATURE[1:],
    ]
    parts = [
        new if i == part else old
        for i, (old, new) in enumerate(zip(GOOD.split("."), parts, strict=True))
    ]
    assert ".".join(parts) != GOOD
    assert await shared_gate.judge(".".join(parts)) == SIGNATURE_BAD


@pytest.mark.parametrize("length", [1, 128, 255, 257, 512])
async def test_a_signature_of_the_wrong_length_is_invalid(shared_gate: Gate, length: int):
    assert await shared_gate.judge(f"{HEADER}.{PAYLOAD}.{segment(b'x' * length)}") == SIGNATURE_BAD


async def test_password_based_encryption_is_never_begun(
    shared_gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise a header could ask for billions of iterations."""
    header = {"alg": "PBES2-HS256+A128KW", "p2c": 2**31 - 1, "p2s": segment(b"salt" * 4)}

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("a key was derived")

    monkeypatch.setattr("hashlib.pbkdf2_hmac", refuse)
    monkeypatch.setattr(
        "cryptography.hazmat.primitives.kdf.pbkdf2.PBKDF2HMAC.derive", refuse, raising=True
    )
    assert await shared_gate.judge(JOB.sign(header=header)) == SIGNATURE_BAD


@pytest.mark.parametrize(
    "exp",
    [..., None, "", str(NOW + 300), True, False, [], [NOW + 300], {}, EXACTLY, NOW, NOW - 1, 0, -1],
)
async def test_an_expiry_must_be_ahead(shared_gate: Gate, exp: Any):
    assert await shared_gate.judge(JOB.sign(exp=exp)) == TIME


@pytest.mark.parametrize("exp", [NOW + 1, NOW + 0.5, float(NOW + 300), 10**31])
async def test_any_number_ahead_is_an_expiry(shared_gate: Gate, exp: Any):
    """RFC 7519, 2: a NumericDate may have a fraction."""
    assert await shared_gate.judge(JOB.sign(exp=exp)) is TRUSTED


@pytest.mark.parametrize("name", ["iat", "nbf"])
@pytest.mark.parametrize("value", [61, None, "text", True, []])
async def test_a_token_from_the_future_is_not_valid_yet(shared_gate: Gate, name: str, value: Any):
    value = NOW + value if value == 61 else value
    assert await shared_gate.judge(JOB.sign(**{name: value})) == TIME


@pytest.mark.parametrize("name", ["iat", "nbf"])
@pytest.mark.parametrize("value", [EXACTLY - NOW + 60, 60, 0, -(10**6), ...])
async def test_an_issuers_clock_may_be_a_minute_ahead(shared_gate: Gate, name: str, value: Any):
    value = value if value is ... else NOW + value
    assert await shared_gate.judge(JOB.sign(**{name: value})) is TRUSTED


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (JOB.sign(iss="https://evil.example", aud="evil"), ISSUER_UNBOUND),
        (JOB.sign(aud="evil", sub="repo:evil/evil"), AUDIENCE),
        (JOB.sign(header={"alg": "none"}, sub="repo:evil/evil"), UNBOUND),
        (JOB.sign(header={"alg": "none"}, repository_id=...), NO_REPOSITORY),
        (JOB.sign(header={"alg": "none"}, event_name="evil"), EVENT),
        (f"{JOB.sign(exp=NOW).rpartition('.')[0]}.{SIGNATURE}", SIGNATURE_BAD),
        (JOB.sign(sub=..., exp=NOW), NO_SUB),
        (JOB.sign(repository_id=..., event_name="evil"), NO_REPOSITORY),
    ],
)
async def test_the_first_rule_broken_names_the_failure(
    shared_gate: Gate, token: str, expected: tuple[str, str | None]
):
    assert await shared_gate.judge(token) == expected


HOSTILE = [
    "evil\r\nx-injected: yes",
    'evil"}\n{"event":"auth_failure_none"}',
    "\x1b[2J\x1b[31mevil",
    "e" * 10_000,
    "\u202eevil\u2066",
    "<script>alert(1)</script>",
    "{0.__class__} %s %n {evil}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:12].encode().hex() for text in HOSTILE])
@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("iss", ISSUER_UNBOUND),
        ("aud", AUDIENCE),
        ("sub", UNBOUND),
        ("repository_id", UNBOUND),
        ("event_name", EVENT),
        ("exp", TIME),
    ],
)
async def test_hostile_text_changes_no_code(
    shared_gate: Gate, claim: str, expected: tuple[str, str | None], text: str
):
    (line,) = await shared_gate.send(JOB.sign(**{claim: text}))
    assert (line["event"].removeprefix("auth_failure_"), line["detail"]) == expected
    assert all(len(str(value)) <= 256 for value in line.values())


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:12].encode().hex() for text in HOSTILE])
async def test_a_hostile_kid_changes_no_code(shared_gate: Gate, text: str):
    (line,) = await shared_gate.send(JOB.sign(header={"kid": text}))
    assert line["event"] == "auth_failure_signature_invalid"
    assert all(len(str(value)) <= 256 for value in line.values())


async def test_a_key_of_another_kind_is_no_key(shared_gate: Gate):
    for key, alg in ((ECKey.generate_key("P-256"), "ES256"), (OctKey.generate_key(256), "HS256")):
        forger = Issuer(key=key, alg=alg, jwks={"keys": []})
        for header in ({"kid": "first"}, {"kid": "first", "alg": "RS256"}):
            assert await shared_gate.judge(forger.sign(header=header)) == SIGNATURE_BAD


async def test_an_algorithm_that_is_not_pinned_costs_no_request(shared_gate: Gate):
    """No key would make such a token good, so none is fetched."""
    before = list(shared_gate.issuer.requests)
    for alg in ("none", "RS512"):
        token = JOB.sign(header={"alg": alg, "kid": "not published"})
        assert await shared_gate.judge(token) == SIGNATURE_BAD
    assert shared_gate.issuer.requests == before
