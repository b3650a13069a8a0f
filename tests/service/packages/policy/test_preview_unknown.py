"""A preview counts apart what the past does not tell: of which provenance a release was."""

from typing import Any

import pytest

from analytics.model.envelopes import InstallWouldBlock, TrustDowngraded
from tests.conftest import World
from tests.service.packages.policy.test_routes import ask
from tests.service.packages.retro.test_matcher import installed

WEAK = TrustDowngraded(
    level_before="provenance",
    level_now="none",
    version_before="1.0.0",
    publisher_before=None,
    publisher_now=None,
    verified=False,
)
MARKED = InstallWouldBlock(blocked_by="trust_downgraded", rule_id=None, trust=WEAK)
EXEMPT = [{"ecosystem": "npm", "package": "pad", "versions": "1.0.0"}]


async def previewed(world: World, **document: Any) -> Any:
    return await (await ask(world, "POST", "/preview", document)).get_json()


@pytest.mark.parametrize(
    ("policy", "blocked", "distrusted"),
    [
        ({}, 0, 0),
        ({"trust": {}}, 1, 3),
        ({"trust": {"action": "mark"}}, 0, 3),
        ({"trust": {"exempt": EXEMPT}}, 1, 1),
        ({"trust": {}, "deny": [{"ecosystem": "npm", "package": "pad"}]}, 4, 0),
        ({"trust": {}, "mode": "audit"}, 1, 3),
    ],
)
async def test_only_marked_rows_tell_what_the_trust_rule_would_have_done(
    world: World, policy: Any, blocked: int, distrusted: int
) -> None:
    await installed(world, "npm:pad@1.0.0", "npm:pad@1.0.0")
    await installed(world, "npm:pad@1.1.0", subject="repo:a")
    await installed(world, "npm:pad@1.1.0", envelope=MARKED, subject="repo:b")
    preview = await previewed(world, **policy)

    assert (preview["blocked"], preview["distrusted"]) == (blocked, distrusted)
    if blocked == 1:
        assert preview["top_rules"] == [{"name": "trust", "installs": 1}]
        assert preview["top_jobs"] == [{"name": "repo:b", "installs": 1}]
