"""Attacks that need something of the issuer: its keys, its server, or another algorithm."""

from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from msgspec import structs

from service.ci.issuers.jwks import RSA_BITS_MAX
from service.core.settings import Settings
from tests.issuers.issuer import (
    Issuer,
    ec_key,
    long_rsa_key,
    public_jwk,
    rsa_key,
    segment,
    signature_of,
)
from tests.service.gates import TRUSTED, Gate, open_gate

SIGNATURE_BAD = ("signature_invalid", None)
FIRST = rsa_key("first")


@pytest.mark.parametrize(
    "issuer",
    [
        Issuer(jwks={"keys": [public_jwk(FIRST, use="enc")]}),
        Issuer(jwks={"keys": [public_jwk(FIRST), public_jwk(rsa_key("second"), kid="first")]}),
        Issuer(jwks={"keys": [public_jwk(FIRST, alg="PS256")]}),
        Issuer(jwks={"keys": [public_jwk(FIRST, kid="another")]}),
        Issuer(jwks={"keys": [public_jwk(FIRST, kid=...)]}),
    ],
    ids=["for encryption", "two of one name", "for PS256", "of another name", "without a name"],
)
async def test_a_key_that_does_not_fit_makes_no_signature_good(settings: Settings, issuer: Issuer):
    """The signature itself is right every time."""
    async with open_gate(settings, issuer) as gate:
        (line,) = await gate.send(issuer.sign())
        assert line["event"] == "auth_failure_signature_invalid"
        assert line["reason"]


async def test_a_key_of_the_greatest_accepted_length_verifies(settings: Settings):
    """The limit on published keys and the limit on signatures have to agree."""
    issuer = Issuer(key=long_rsa_key())
    assert issuer.key.public_key.key_size == RSA_BITS_MAX
    async with open_gate(settings, issuer) as gate:
        assert await gate.judge(issuer.sign()) is TRUSTED


ES256_FILE = """
[github]
url = "https://token.actions.githubusercontent.com"
provider = "github"
accepted = true
algorithms = ["ES256"]
requires_repository_id = true
repository_id_claim = "repository_id"
event_name_claim = "event_name"
"""


async def test_an_elliptic_signature_has_one_form(settings: Settings, tmp_path: Path):
    """It has r and s, 32 bytes each, neither of them zero."""
    file = tmp_path / "issuers.toml"
    file.write_text(ES256_FILE)
    issuer = Issuer(key=ec_key("curve"), alg="ES256")
    good = issuer.sign()
    signing_input = good.rpartition(".")[0]
    raw = signature_of(good)
    r, s = raw[:32], raw[32:]
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    forms = {
        "r zero": bytes(32) + s,
        "s zero": r + bytes(32),
        "both zero": bytes(64),
        "r of the order": order.to_bytes(32, "big") + s,
        "s of the order": r + order.to_bytes(32, "big"),
        "DER": encode_dss_signature(int.from_bytes(r), int.from_bytes(s)),
        "one byte more": raw + b"\0",
        "padded inside": b"\0" + r + b"\0" + s,
        "empty": b"",
    }
    async with open_gate(settings_with(settings, file), issuer) as gate:
        assert await gate.judge(good) is TRUSTED
        for form in forms.values():
            assert await gate.judge(f"{signing_input}.{segment(form)}") == SIGNATURE_BAD
        assert await gate.judge(Issuer().sign()) == SIGNATURE_BAD


async def test_a_key_is_used_with_the_algorithm_it_names(settings: Settings, tmp_path: Path):
    """The key could do both algorithms, and both are pinned."""
    file = tmp_path / "issuers.toml"
    file.write_text(ES256_FILE.replace('["ES256"]', '["RS256", "RS512"]'))
    issuer = Issuer(alg="RS512")
    async with open_gate(settings_with(settings, file), issuer) as gate:
        assert await gate.judge(Issuer().sign()) is TRUSTED
        assert await gate.judge(issuer.sign()) == SIGNATURE_BAD
        issuer.jwks = {"keys": [public_jwk(FIRST, alg=...)]}
        gate.world.clock.advance(minutes=10)
        issuer.now = gate.world.clock.now
        assert await gate.judge(issuer.sign()) is TRUSTED


def settings_with(settings: Settings, file: Path) -> Settings:
    return structs.replace(settings, issuers_file=file)


class _Breakable(Issuer):
    """An issuer whose keys are not answered for once it is broken."""

    is_broken = False

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503) if self.is_broken else super().answer(request)


async def test_without_keys_no_token_is_good_and_the_log_says_why(settings: Settings):
    issuer = _Breakable()
    issuer.is_broken = True
    async with open_gate(settings, issuer) as gate:
        (line,) = await gate.send(issuer.sign())
        assert line["event"] == "auth_failure_signature_invalid"
        assert line["reason"]


async def test_with_keys_a_good_token_outlives_the_outage(settings: Settings):
    issuer = _Breakable()
    async with open_gate(settings, issuer) as gate:
        assert await gate.judge(issuer.sign()) is TRUSTED
        issuer.is_broken = True
        for hours in (1, 23 - 1 / 60):
            gate.world.clock.advance(hours=hours)
            issuer.now = gate.world.clock.now
            assert await gate.judge(issuer.sign()) is TRUSTED
        gate.world.clock.advance(minutes=2)
        issuer.now = gate.world.clock.now
        assert await gate.judge(issuer.sign()) == SIGNATURE_BAD


async def test_a_signature_that_held_is_checked_again_after_a_while(gate: Gate):
    """A key that an issuer withdraws counts for at most ten minutes."""
    token = gate.issuer.sign(exp=int(gate.issuer.now.timestamp()) + 3_600)
    assert await gate.judge(token) is TRUSTED
    gate.issuer.publish(rsa_key("second"))
    gate.world.clock.advance(minutes=10)
    assert await gate.judge(token) == SIGNATURE_BAD


async def test_a_token_is_not_trusted_longer_than_it_lasts(gate: Gate):
    token = gate.issuer.sign()
    assert await gate.judge(token) is TRUSTED
    gate.world.clock.advance(seconds=299)
    assert await gate.judge(token) is TRUSTED
    gate.world.clock.advance(seconds=1)
    assert await gate.judge(token) == ("expired_or_not_yet_valid", None)
