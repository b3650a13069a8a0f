"""What makes a rejected subject verified: a real token that holds now, under keys that are here."""

from typing import Any

import pytest

from tests.conftest import bindings_path
from tests.issuers.issuer import Issuer, rsa_key
from tests.service.gates import TRUSTED, Gate

UNBOUND = ("unbound_oidc_subject", None)
ELSEWHERE = "repo:acme/elsewhere:ref:refs/heads/main"


@pytest.fixture
async def knowing(gate: Gate) -> Gate:
    """A gate that has its issuer's keys: a good token has come through it."""
    assert await gate.judge(gate.issuer.sign()) is TRUSTED
    return gate


async def entry(gate: Gate) -> dict[str, Any]:
    """The one rejected subject as it is listed."""
    await gate.world.services.rejected.flush()
    response = await gate.world.client.get(f"{bindings_path()}/rejected", headers=gate.world.admin)
    (found,) = (await response.get_json())["rejected"]
    assert found["code"] == UNBOUND[0]
    return found


async def test_a_genuine_token_without_a_binding_is_verified(knowing: Gate):
    assert await knowing.judge(knowing.issuer.sign(sub=ELSEWHERE)) == UNBOUND

    found = await entry(knowing)

    assert (found["verified"], found["subject"]) == (True, ELSEWHERE)
    await knowing.bind(**found["proposal"]["body"])
    assert await knowing.judge(knowing.issuer.sign(sub=ELSEWHERE)) is TRUSTED


async def test_so_is_one_whose_binding_was_revoked_since(knowing: Gate):
    (binding,) = await knowing.world.bindings()
    await knowing.revoke(binding["id"])
    assert await knowing.judge(knowing.issuer.sign()) == UNBOUND

    assert (await entry(knowing))["verified"] is True


FORGED = Issuer(key=rsa_key("forged"))


@pytest.mark.parametrize(
    "token",
    [
        FORGED.sign(sub=ELSEWHERE),
        FORGED.sign(sub=ELSEWHERE, header={"kid": "first"}),
        Issuer().sign(sub=ELSEWHERE, header={"alg": "none"}),
        Issuer().sign(sub=ELSEWHERE, exp=1),
        Issuer().sign(sub=ELSEWHERE, exp=...),
    ],
    ids=["unknown key", "known kid", "no algorithm", "expired", "without an expiry"],
)
async def test_what_does_not_hold_is_unverified_and_gets_no_proposal(knowing: Gate, token: str):
    """The code is the same: rules about bindings come first, for every token."""
    assert await knowing.judge(token) == UNBOUND

    found = await entry(knowing)

    assert (found["verified"], found["subject"]) == (False, ELSEWHERE)
    assert found["proposal"] is None


async def test_an_untrusted_token_sends_no_request_to_its_issuer(gate: Gate):
    """An unverified token must not cause requests to its issuer."""
    assert await gate.judge(gate.issuer.sign(sub=ELSEWHERE)) == UNBOUND

    assert (await entry(gate))["verified"] is False
    assert gate.issuer.requests == []
