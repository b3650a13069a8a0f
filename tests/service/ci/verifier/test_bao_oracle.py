"""OpenBao's `bound_claims` and our conditions accept and refuse the same tokens."""

import random
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from service.ci.providers import CONDITION_CLAIMS
from service.core.clock import utc_now
from tests.budgets import budget
from tests.issuers.issuer import AUDIENCE, Issuer
from tests.openbao import OpenBao, open_bao
from tests.service.gates import TRUSTED, Gate, open_gate

pytestmark = pytest.mark.slow

TOKENS: Final = budget(200, 2_000)
ROLES: Final = 24
SEED: Final = 20260715
CLAIMS: Final = CONDITION_CLAIMS["github"]
VALUES: Final = {
    "job_workflow_ref": ("acme/ci/.github/workflows/x.yml@refs/heads/main", "acme/ci/x.yml@v1"),
    "environment": ("production", "Production", "Europe production", "staging"),
    "ref": ("refs/heads/main", "refs/heads/main2", "refs/tags/v1"),
    "repository_owner_id": ("77", "7", "077"),
    "runner_environment": ("github-hosted", "self-hosted"),
}
EVENTS: Final = ("push", "pull_request", "schedule")


def draw_terms(rng: random.Random) -> tuple[list[str], dict[str, str]]:
    """The events and conditions of a binding."""
    events = rng.sample(EVENTS, rng.choice((0, 1, 2)))
    claims = rng.sample(CLAIMS, rng.choice((0, 1, 1, 2, 3)))
    return events, {claim: rng.choice(VALUES[claim]) for claim in claims}


def draw_claims(rng: random.Random, conditions: dict[str, str]) -> dict[str, Any]:
    """The claims of a token, most of which meet the conditions: `...` is an absent claim."""
    drawn: dict[str, Any] = {"event_name": rng.choice((*EVENTS, ...))}
    for claim in CLAIMS:
        others = [*VALUES[claim], "", ..., None, 77, True, {"a": "b"}]
        fits = claim in conditions and rng.random() < 0.7
        drawn[claim] = conditions[claim] if fits else rng.choice(others)
    if rng.random() < 0.1:
        drawn["repository_id"] = rng.choice(("1", ...))
    return drawn


async def bind(gate: Gate, bao: OpenBao, role: str, events: list[str], wanted: dict[str, str]):
    """The same terms as a binding of ours and as a role of OpenBao."""
    sub = f"repo:acme/{role}:ref:refs/heads/main"
    await gate.world.bind(sub_pattern=sub, event_names=events, conditions=wanted)
    bound: dict[str, Any] = {"repository_id": "123456789", **wanted}
    if events:
        bound["event_name"] = events
    bao.trust(
        role,
        bound_subject=sub,
        bound_audiences=[AUDIENCE],
        bound_claims=bound,
        bound_claims_type="string",
    )
    return sub


async def test_both_accept_and_refuse_the_same_tokens(settings, tmp_path: Path):
    rng = random.Random(SEED)
    issuer = Issuer()
    expires_at = int((max(utc_now(), issuer.now) + timedelta(days=1)).timestamp())
    accepted = refused = 0
    pem = issuer.key.as_pem(private=False).decode()
    with open_bao(tmp_path, pem, issuer.url) as bao:
        async with open_gate(settings, issuer) as gate:
            roles = []
            for number in range(ROLES):
                events, conditions = draw_terms(rng)
                sub = await bind(gate, bao, f"role-{number}", events, conditions)
                roles.append((f"role-{number}", sub, conditions))
            for number in range(TOKENS):
                role, sub, conditions = rng.choice(roles)
                claims = draw_claims(rng, conditions)
                token = issuer.sign(sub=sub, exp=expires_at, jti=f"{SEED}-{number}", **claims)

                ours = await gate.judge(token)

                theirs = bao.accepts(role, token)
                assert (ours is TRUSTED) == theirs, (SEED, number, role, claims, ours)
                accepted, refused = accepted + theirs, refused + (not theirs)
    assert min(accepted, refused) > TOKENS // 10, "the tokens would show little"
