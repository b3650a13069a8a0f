"""Which rejected tokens are believed: those whose issuer said it all, to us, now."""

from typing import Any

import pytest

from tests.conftest import bindings_path
from tests.issuers.issuer import Issuer, rsa_key
from tests.service.gates import TRUSTED, Gate

UNBOUND = "repo:acme/unbound:ref:refs/heads/main"
JOB = Issuer()
GOOD = JOB.sign(sub=UNBOUND)
NOW = int(JOB.now.timestamp())


async def listed(gate: Gate) -> list[dict[str, Any]]:
    await gate.world.services.rejected.flush()
    answer = await gate.world.client.get(f"{bindings_path()}/rejected", headers=gate.world.admin)
    return (await answer.get_json())["rejected"]


async def entry_of(gate: Gate, token: str) -> dict[str, Any]:
    """What is listed once `token` was rejected, with the issuer's keys known."""
    assert await gate.judge(gate.issuer.sign()) is TRUSTED
    assert await gate.judge(token) is not TRUSTED
    (entry,) = await listed(gate)
    return entry


async def test_what_the_issuer_says_is_believed_and_gets_a_proposal(gate: Gate):
    entry = await entry_of(gate, GOOD)

    assert (entry["verified"], entry["subject"]) == (True, UNBOUND)
    assert entry["owner"] == "acme"
    body = entry["proposal"]["body"]
    assert body["repository_id"] == "123456789"
    made = await gate.world.client.post(bindings_path(), headers=gate.world.admin, json=body)
    assert made.status_code == 201
    assert await gate.judge(GOOD) is TRUSTED


@pytest.mark.parametrize(
    "token",
    [
        Issuer(key=rsa_key("attacker")).sign(header={"kid": "first"}, sub=UNBOUND),
        JOB.sign(header={"alg": "none"}, sub=UNBOUND),
        f"{GOOD.rpartition('.')[0]}.",
        JOB.sign(header={"kid": "unknown"}, sub=UNBOUND),
        JOB.sign(sub=UNBOUND, exp=NOW),
        JOB.sign(sub=UNBOUND, exp=...),
        JOB.sign(sub=UNBOUND, nbf=NOW + 61),
        JOB.sign(sub=UNBOUND, aud="another-service"),
        JOB.sign(sub=UNBOUND, iss="https://evil.example"),
    ],
    ids=[
        "of another key",
        "of no algorithm",
        "without signature",
        "of an unknown key",
        "expired",
        "without expiry",
        "of the future",
        "for another service",
        "of another issuer",
    ],
)
async def test_what_could_be_forged_is_not(gate: Gate, token: str):
    entry = await entry_of(gate, token)

    assert (entry["verified"], entry["proposal"]) == (False, None)


async def test_without_known_keys_nothing_is_believed_or_asked(gate: Gate):
    """An untrusted token must not cause requests to its issuer."""
    assert await gate.judge(GOOD) is not TRUSTED

    (entry,) = await listed(gate)
    assert entry["verified"] is False
    assert gate.issuer.requests == []


async def test_that_a_signature_held_before_does_not_make_an_expired_token_hold(gate: Gate):
    token = gate.issuer.sign()
    assert await gate.judge(token) is TRUSTED
    (binding,) = await gate.world.bindings()
    await gate.world.revoke(binding["id"])
    for _ in range(2):
        assert await gate.judge(token) is not TRUSTED
        gate.world.clock.advance(seconds=300)

    found = {entry["verified"]: entry["count"] for entry in await listed(gate)}
    assert found == {True: 1, False: 1}
