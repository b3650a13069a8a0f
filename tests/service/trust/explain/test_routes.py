"""The endpoint that explains tokens: what may be asked, and that nothing of it is kept."""

import pytest

from tests.conftest import World, bindings_path, refused
from tests.issuers.issuer import Issuer
from tests.service.gates import Gate
from tests.service.trust.explain.explaining import (
    explain_path,
    explained,
    explained_claims,
    failing,
    texts,
)


async def test_another_normal_form_is_recognised(world: World):
    """The same name typed on two kinds of keyboard."""
    await world.bind(sub_pattern="repo:acme/caf\u00e9:ref:refs/heads/main")

    said = await explained_claims(world, Issuer(), sub="repo:acme/cafe\u0301:ref:refs/heads/main")

    difference = failing(said)["difference"]
    assert "normal form" in difference["hint"]
    assert difference["at"] == 13
    assert difference["expectedCodePoint"] == "U+00E9 LATIN SMALL LETTER E WITH ACUTE"


async def test_a_request_with_a_projects_key_is_explained_as_such(world: World):
    binding_id = await world.bind(project_id=world.project.id)
    claims = Issuer().claims()

    with_key = await explained(world, claims=claims, project_id=world.project.id)
    without = await explained(world, claims=claims)

    assert (with_key["passes"], with_key["binding"]) == (True, binding_id)
    assert failing(without)["rule"] == 3


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "give either token or claims"),
        ({"token": "a", "claims": {}}, "give either token or claims"),
        ({"token": 5}, "token must be a string"),
        ({"token": None}, "token must be a string"),
        ({"claims": []}, "claims must be a JSON object"),
        ({"claims": None}, "claims must be a JSON object"),
        ({"claims": {}, "project_id": 5}, "project_id must be a string"),
        ({"claims": {}, "project_id": "proj_x"}, "project_id not found for this org"),
        ({"claims": {}, "project": "x"}, "unknown field: project"),
        ([], "request body must be a JSON object"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_that_asks_nothing_clear_is_refused(shared_world, body, text):
    answer = await shared_world.client.post(explain_path(), headers=shared_world.admin, json=body)

    assert await refused(answer) == (400, text)


async def test_a_project_of_another_organisation_is_not_found(world: World):
    answer = await world.client.post(
        explain_path("other"),
        headers=world.admin,
        json={"claims": {}, "project_id": world.project.id},
    )

    assert await refused(answer) == (400, "project_id not found for this org")


async def test_another_organisations_bindings_are_not_named(world: World):
    await world.bind()
    answer = await world.client.post(
        explain_path("other"), headers=world.admin, json={"claims": Issuer().claims()}
    )

    said = await answer.get_json()
    assert (said["code"], said["nearest"]) == ("unbound_oidc_subject", [])


async def test_nothing_of_an_explanation_is_kept(world, capfd):
    await world.bind()
    before = await world.audit()
    token = Issuer().sign(sub="repo:acme/secret-project:ref:refs/heads/main")
    capfd.readouterr()

    said = await explained(world, token=token)
    await explained_claims(world, Issuer())

    logged = "".join(capfd.readouterr())
    assert await world.audit() == before
    assert [(one["useCount"], one["lastUsedAt"]) for one in await world.bindings()] == [(0, None)]
    assert said["code"] == "unbound_oidc_subject"
    parts = [token, *token.split(".")[1:]]
    assert not any(part in text for part in parts for text in texts(said))
    assert "oidc-bindings/explain" in logged
    assert not any(part in logged for part in [*parts, "secret-project", "auth_failure_"])


async def test_the_path_is_no_binding_id(world: World):
    answer = await world.client.delete(bindings_path("acme", "explain"), headers=world.admin)

    assert await refused(answer) == (405, "method not allowed")
    assert answer.headers["allow"] == "POST"


async def test_a_token_is_checked_with_its_issuers_published_keys(gate: Gate):
    good = await explained(gate.world, token=gate.issuer.sign())
    other = await explained(gate.world, token=gate.issuer.sign(header={"kid": "other"}))

    assert (good["passes"], good["signatureChecked"]) == (True, True)
    assert (other["code"], failing(other)["name"]) == ("signature_invalid", "signature")
    assert "other" in other["reason"]


async def test_explain_and_the_verifier_say_the_same(gate: Gate):
    for changes in ({}, {"sub": "x"}, {"event_name": "release"}, {"exp": 1}, {"aud": []}):
        token = gate.issuer.sign(**changes)
        said = await explained(gate.world, token=token)
        judged = await gate.judge(token)
        assert (judged or (None, None)) == (said["code"], said["detail"])
