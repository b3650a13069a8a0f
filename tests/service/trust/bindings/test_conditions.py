"""Conditions beside a binding's subject, from the request to what is shown of it."""

import pytest

from tests.conftest import bindings_path
from tests.issuers.issuer import Issuer
from tests.service.trust.explain.explaining import explained_claims

CONDITIONS = {"environment": "production", "job_workflow_ref": "acme/ci/.github/x.yml@refs/heads/m"}


async def test_what_is_created_shows_them_and_what_has_none_does_not(world):
    answer = await world.create(conditions=CONDITIONS)
    plain = await world.create(sub_pattern="repo:acme/other:x", conditions={})
    created = await answer.get_json()
    listed = {each["subPattern"]: each for each in await world.bindings()}

    assert sorted(created) == [
        *("addedAt", "eventNames", "id", "issuer", "origin", "repositoryId", "subPattern"),
    ]
    assert plain.status_code == 201
    assert listed[created["subPattern"]]["conditions"] == CONDITIONS
    assert "conditions" not in listed["repo:acme/other:x"]


async def test_the_audit_row_has_them_only_where_set(world):
    await world.bind(conditions=CONDITIONS)
    await world.bind(sub_pattern="repo:acme/other:x")
    plain, conditional = await world.audit(event="oidc_binding_created")

    assert conditional["payload"]["conditions"] == CONDITIONS
    assert "conditions" not in plain["payload"]


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ([], "conditions must be an object of claims and their exact values (strings)"),
        ("environment=x", "conditions must be an object of claims and their exact values"),
        ({"environment": 1}, "conditions must be an object of claims and their exact values"),
        ({"environment": None}, "conditions must be an object of claims and their exact values"),
        ({"branch": "main"}, "conditions has an unknown claim: branch: use job_workflow_ref, env"),
        ({"namespace_id": "1"}, "conditions has an unknown claim: namespace_id: use job_workflow"),
        ({"ref": ""}, "the condition on ref must be 1..1024 chars with no control characters"),
        ({"ref": "x" * 1025}, "the condition on ref must be 1..1024 chars"),
        ({"ref": " x"}, "the condition on ref must be 1..1024 chars"),
        ({"ref": "a\nb"}, "the condition on ref must be 1..1024 chars"),
        ({"ref": "a\u202eb"}, "the condition on ref must be 1..1024 chars"),
        ({"ref": "\ud800"}, "the condition on ref must be 1..1024 chars"),
    ],
)
async def test_invalid_conditions_are_refused_and_create_nothing(world, conditions, text):
    answer = await world.create(conditions=conditions)

    assert answer.status_code == 400
    assert (await answer.get_json())["error"].startswith(text)
    assert await world.bindings() == []


async def test_a_value_may_have_spaces_inside(world):
    await world.bind(conditions={"environment": "Europe production"})

    (binding,) = await world.bindings()
    assert binding["conditions"] == {"environment": "Europe production"}


async def test_they_are_reported_after_the_specifications_own_errors(world):
    answer = await world.create(origin="none", conditions=[], more=1)

    assert (await answer.get_json())["error"].startswith("origin must be")
    answer = await world.create(conditions=[], more=1)
    assert (await answer.get_json())["error"].startswith("conditions must be")


async def test_they_are_no_part_of_the_slot(world):
    await world.bind(conditions=CONDITIONS)

    answer = await world.create(conditions={"environment": "staging"})

    assert answer.status_code == 409


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ({"event_names": ["push"]}, CONDITIONS),
        ({"conditions": {"ref": "refs/heads/main"}}, {"ref": "refs/heads/main"}),
        ({"conditions": {}}, None),
        ({"conditions": None}, None),
    ],
)
async def test_a_replacement_keeps_them_unless_it_names_others(world, change, after):
    binding_id = await world.bind(conditions=CONDITIONS)

    path = f"{bindings_path('acme', binding_id)}/replace"
    answer = await world.client.post(path, headers=world.admin, json=change)

    assert answer.status_code == 201
    newest = next(each for each in await world.bindings() if each["revokedAt"] is None)
    assert newest.get("conditions") == after


async def test_explain_has_a_row_for_each(world):
    issuer = Issuer()
    await world.bind(conditions={"environment": "production", "ref": "refs/heads/main"})

    answer = await explained_claims(world, issuer, ref="refs/heads/main", environment="staging")
    names = [(rule["name"], rule["status"]) for rule in answer["rules"]]
    absent = await explained_claims(world, issuer, ref="refs/heads/main")
    met = await explained_claims(world, issuer, ref="refs/heads/main", environment="production")

    assert (answer["code"], answer["detail"]) == ("unbound_oidc_subject", None)
    assert names[4:] == [
        ("event", "passed"),
        ("condition:environment", "failed"),
        ("condition:ref", "passed"),
        ("signature", "not_reached"),
        ("time", "not_reached"),
    ]
    assert (answer["rules"][5]["expected"], answer["rules"][5]["found"]) == (
        "production",
        "staging",
    )
    assert "is not in the token" in absent["rules"][5]["note"]
    assert answer["proposal"] is None, "a proposal must not drop a condition"
    assert met["passes"]
    assert met["rules"][5]["status"] == "passed"


async def test_without_conditions_an_explanation_has_the_seven_rules(world):
    issuer = Issuer()
    await world.bind()

    answer = await explained_claims(world, issuer)

    assert [rule["rule"] for rule in answer["rules"]] == [1, 2, 3, 4, 5, 6, 7]
