"""What is a member's own is opened by a live session, and by nothing else."""

import pytest

from tests.conftest import World, refused
from tests.service.access.test_credentials import TABLE

OWN = {"origin": "http://localhost:8080"}
NONE_OF_A_MEMBER = [
    name
    for name, row in TABLE.items()
    if row.is_operator or (row.on_pages if row.is_api_only else row.in_acme) is None
]
"""The admin token among them: it belongs to no member."""


def own_endpoints(world: World) -> set[tuple[str, str]]:
    """Method and path of every endpoint below the profile page."""
    return {
        (method, rule.rule)
        for rule in world.app.url_map.iter_rules()
        if rule.rule.startswith("/admin/ui/profile")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }


@pytest.mark.parametrize("credential", NONE_OF_A_MEMBER)
async def test_it_takes_a_session(world: World, credential: str) -> None:
    headers = await TABLE[credential].headers(world)
    endpoints = own_endpoints(world)
    assert len(endpoints) == 10

    for method, path in endpoints:
        answer = await world.client.open(path, method=method, headers=headers | OWN, json={})
        status, _ = await refused(answer)
        assert status == 401, (method, path)
