"""A name that means nothing here is refused: a typo must not widen trust."""

import pytest

from tests.conftest import World, bindings_path, refused

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXPORTS = {"audit_export.export", "audit_export.dashboard_export"}


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"event_name": "push"}, "event_name"),
        ({"eventNames": ["push"]}, "eventNames"),
        ({"repositoryId": "7"}, "repositoryId"),
        ({"Issuer": "x"}, "Issuer"),
        ({"issuer ": "x"}, "issuer "),
        ({"": 1}, ""),
        ({"id": "obind_1", "added_by": "me"}, "id, added_by"),
        ({"{value}": 1}, "{value}"),
        ({"\ud800": None}, "\ud800"),
        ({"projéct": None}, "projéct"),
    ],
)
async def test_an_unknown_key_of_a_body_is_named(
    shared_world: World, extra: dict[str, object], named: str
):
    """Had `event_name` been ignored, any event would have been allowed."""
    assert await refused(await shared_world.create(**extra)) == (400, f"unknown field: {named}")
    assert await shared_world.bindings() == []


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("nonsense=1", "nonsense"),
        ("nonsense", "nonsense"),
        ("a=1&b=2", "a, b"),
        ("State=active", "State"),
        ("as_of=2026-01-01T00:00:00Z", "as_of"),
        ("%7Bvalue%7D=1", "{value}"),
    ],
)
async def test_an_unknown_query_parameter_of_a_list_is_named(
    shared_world: World, query: str, named: str
):
    """A list that ignored `as_of` would show today's trust as that of another day."""
    answer = await shared_world.client.get(f"{bindings_path()}?{query}", headers=shared_world.admin)

    assert await refused(answer) == (400, f"unknown query parameter: {named}")


async def test_every_endpoint_of_the_api_refuses_unknown_query_parameters(shared_world: World):
    """Taken from the app's own list of endpoints, so that a new one is held to it, too."""
    answers = {}
    for rule in shared_world.app.url_map.iter_rules():
        if not (rule.rule.startswith("/api/v1/") or rule.endpoint in EXPORTS):
            continue  # pages say it in words, and have tests of their own
        path = rule.rule.replace("<slug>", "acme").replace("<row:audit_id>", "aud_" + "0" * 19)
        for method in rule.methods & {"GET", "POST", "PUT", "PATCH", "DELETE"}:
            answer = await shared_world.client.open(
                f"{path.replace('<binding:binding_id>', 'obind_0')}?format=csv&nonsense=1"
                if rule.endpoint in EXPORTS
                else f"{path.replace('<binding:binding_id>', 'obind_0')}?nonsense=1",
                method=method,
                headers=shared_world.admin,
            )
            answers[method, rule.rule] = await refused(answer)

    # The admin token has no session to end, whatever is asked with it.
    assert answers.pop(("DELETE", "/api/v1/session"))[0] == 401
    # Nor does it install anything.
    assert answers.pop(("POST", "/api/v1/orgs/<slug>/install-tokens"))[0] == 401
    assert len(answers) >= 7
    assert answers == dict.fromkeys(answers, (400, "unknown query parameter: nonsense"))
