"""The demo's bindings: the table, the audit rows and the rows that name them tell one story."""

from collections import Counter, defaultdict
from datetime import datetime

import pytest

from service.cli.demo.seed import DEMO_ORG
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, bindings_path
from tests.service.cli.demo.conftest import Demo, Row

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.slow, only_full]


async def test_each_binding_has_its_one_row(demo: Demo):
    """Every binding mutation writes exactly one audit row."""
    bindings = await demo.bindings()
    created = await demo.audit(event="oidc_binding_created")
    same = {
        "id": "binding_id",
        "addedBy": "by_user_id",
        "subPattern": "sub_pattern",
        "repositoryId": "repository_id",
        "eventNames": "event_names",
        "projectId": "project_id",
        "teamId": "team_id",
        "origin": "origin",
    }

    assert len(created) == len(bindings)
    rows = {row["subject"]: row for row in created}
    for binding in bindings:
        row = rows[binding["id"]]
        assert binding["addedAt"] == _ms(row["created_at"])
        assert binding["addedBy"] == row["actor"]
        assert {key: row["payload"][name] for key, name in same.items()} == {
            key: binding[key] for key in same
        }


async def test_each_revoked_binding_has_its_one_row(demo: Demo):
    revoked = [binding for binding in await demo.bindings() if binding["revokedAt"]]
    entries = await demo.audit(event="oidc_binding_revoked")

    assert len(entries) == len(revoked)
    rows = {row["subject"]: row for row in entries}
    for binding in revoked:
        row = rows[binding["id"]]
        assert binding["revokedAt"] == _ms(row["created_at"])
        assert binding["revokedBy"] == row["actor"] == row["payload"]["by_user_id"]
        assert binding["revokedReason"] == row["payload"]["revoked_reason"]


async def test_there_are_many_of_every_kind(demo: Demo):
    bindings = await demo.bindings()
    revoked = [binding for binding in bindings if binding["revokedAt"]]
    triples = Counter((binding["subPattern"], binding["repositoryId"]) for binding in revoked)

    assert len(bindings) >= 25
    assert len(revoked) >= 5
    assert {None} < {binding["revokedReason"] for binding in revoked}
    assert len({binding["addedBy"] for binding in bindings}) >= 5
    assert "system:admin-token" in {binding["addedBy"] for binding in bindings}
    assert any(  # trusted again after it was revoked
        triples[binding["subPattern"], binding["repositoryId"]]
        for binding in bindings
        if not binding["revokedAt"]
    )


async def test_a_teams_binding_lies_below_the_organisations(demo: Demo):
    bindings = await demo.bindings()
    envelopes = {
        (binding["subPattern"], binding["repositoryId"]): binding["addedAt"]
        for binding in bindings
        if binding["origin"] == "org_admin" and not binding["revokedAt"]
    }
    of_teams = [binding for binding in bindings if binding["origin"] == "team_admin"]

    assert of_teams
    for binding in of_teams:
        assert envelopes[binding["subPattern"], binding["repositoryId"]] < binding["addedAt"]


async def test_a_binding_stamps_only_what_it_trusts_and_while_it_does(demo: Demo, rows: list[Row]):
    bindings = {binding["id"]: binding for binding in await demo.bindings()}
    attributed = [row for row in rows if row.oidc_binding_id]

    assert len(attributed) > len(rows) / 2
    for row in attributed:
        binding, ci = bindings[row.oidc_binding_id or ""], row.payload["ci"]
        assert row.actor_source == "oidc_github"
        assert row.actor.startswith("key_")
        assert row.subject == ci["sub"] == binding["subPattern"]
        assert row.repository_id == ci["repository_id"] == binding["repositoryId"]
        assert (row.run_id, row.token_id) == (ci["run_id"], ci["jti"])
        assert not binding["eventNames"] or ci["event_name"] in binding["eventNames"]
        assert datetime.fromisoformat(binding["addedAt"]) <= row.created_at
    for binding in bindings.values():
        if binding["revokedAt"]:
            end = datetime.fromisoformat(binding["revokedAt"])
            assert all(
                row.created_at < end for row in attributed if row.oidc_binding_id == binding["id"]
            )


async def test_rows_without_a_binding_carry_no_token(rows: list[Row]):
    for row in rows:
        if row.verdict_source == "proxy" and not row.oidc_binding_id:
            assert (row.actor_source, row.subject) == ("api_key", None)
            assert "ci" not in row.payload
            assert row.repository_id is row.run_id is row.token_id is None


async def test_use_is_counted_by_request(demo: Demo, rows: list[Row]):
    requests: dict[str, set[str | None]] = defaultdict(set)
    last: dict[str, str] = {}
    for row in rows:
        if row.oidc_binding_id:
            requests[row.oidc_binding_id].add(row.request_id)
            last.setdefault(row.oidc_binding_id, row.created_at.isoformat())

    bindings = await demo.bindings()
    assert any(binding["useCount"] == 0 for binding in bindings)
    for binding in bindings:
        assert binding["useCount"] == len(requests[binding["id"]])
        assert (binding["lastUsedAt"] is None) == (binding["useCount"] == 0)
        assert (binding["lastUsedAt"] or "")[:16] <= last.get(binding["id"], "")


async def test_rejected_subjects_are_those_of_the_rows(demo: Demo, rows: list[Row]):
    """Each was rejected with a request that left rows without a binding, and could be trusted.

    What has been trusted since has nothing to propose.
    """
    path = f"{bindings_path(DEMO_ORG)}/rejected"
    entries = (await (await demo.answer(path)).get_json())["rejected"]
    requests = {row.request_id: row for row in reversed(rows)}

    assert len(entries) >= 3
    assert {None, "event_name_not_allowed"} == {entry["detail"] for entry in entries}
    assert len([entry for entry in entries if entry["proposal"]]) >= 2
    assert any(entry["proposal"] is None for entry in entries)
    for entry in entries:
        row = requests[entry["lastRequestId"]]
        assert entry["verified"]
        assert (row.verdict_source, row.oidc_binding_id) == ("proxy", None)
        assert entry["lastAt"] <= row.created_at.isoformat()


async def test_what_is_proposed_for_them_is_what_an_explanation_says(demo: Demo):
    path = f"{bindings_path(DEMO_ORG)}"
    entries = (await (await demo.answer(f"{path}/rejected")).get_json())["rejected"]
    for entry in entries:
        claims = {
            "iss": entry["issuer"],
            "aud": "countersign",
            "sub": entry["subject"],
            "repository_owner": entry["owner"],
            "repository_id": entry["repositoryId"],
            "event_name": entry["eventName"],
            "exp": 4_000_000_000,
        }
        body = {"claims": claims, "project_id": entry["projectId"]}
        response = await demo.client.post(
            f"{path}/explain", headers={"x-service-admin-token": ADMIN_TOKEN}, json=body
        )
        said = await response.get_json()
        assert said["proposal"] == entry["proposal"]
        assert said["passes"] == (entry["proposal"] is None)


def _ms(instant: str) -> str:
    """The audit API's microseconds as the binding API prints them."""
    assert instant.endswith("000Z")
    return instant.removesuffix("000Z") + "Z"
