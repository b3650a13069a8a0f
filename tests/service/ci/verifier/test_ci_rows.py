"""Rows of CI jobs beside all others: found, summed up, exported, and imported elsewhere."""

import io
from typing import Any

import pytest

from analytics.imports.chunks import FileKind, ImportFormat
from service.audit.importer import ImportFile, ImportJob, ImportWatch
from tests.conftest import BY_OPERATOR, World
from tests.service.ci.verifier.test_attribution import ingest, key_of
from tests.service.gates import Gate

NEW_IN_EACH = {"id", "tenant_id", "received_at", "request_id"}
# What a binding may name, and an issuer may sign, at its worst: private use, not assigned, long.
ODD = "repo:acme/\ue000\u0378\u0301\U0001f600:" + "é" * 1008
HOSTILE = {
    "jti": '=1+1\r\n"\x1b[2J\x00\u202e,' + "j" * 5_000,
    "run_id": 9_876_543_210,
    "event_name": "push",
}


async def with_rows(gate: Gate) -> None:
    """Installs of a job, of a hostile one and of none, and a change that a job made."""
    world = gate.world
    key = await key_of(world)
    await gate.world.bind(sub_pattern=ODD)
    for token in (None, gate.issuer.sign(), gate.issuer.sign(sub=ODD, **HOSTILE)):
        assert (await ingest(world, key, token)).status_code == 200
    token = {"x-service-ci-oidc": gate.issuer.sign()}
    assert (await world.create(world.admin | token, sub_pattern="repo:x:y")).status_code == 201


async def export(world: World, **query: str) -> bytes:
    """A file of acme's CI rows, the oldest first."""
    answer = await world.client.get(
        "/api/v1/admin/orgs/acme/audit/export",
        headers=world.admin,
        query_string={"actor_source": "oidc_*", "order": "asc", **query},
    )
    assert answer.status_code == 200
    return await answer.get_data(as_text=False)


@pytest.mark.parametrize("form", list(ImportFormat))
async def test_ci_rows_survive_a_move_to_another_organisation(gate: Gate, form: ImportFormat):
    await with_rows(gate)
    world = gate.world
    sent = await world.audit(actor_source="oidc_*")
    content = await export(world, format=form)
    source = ImportFile(f"audit.{form}", io.BytesIO(content), len(content), FileKind(form))
    job = ImportJob(world.other, source, BY_OPERATOR, is_partial=False)

    await world.services.importer.take(job, ImportWatch(lambda _: None, lambda _: None), 0.0)

    got = await world.audit("other", actor_source="oidc_*")
    assert len(sent) == len(got) == 3
    for was, now in zip(sent, got, strict=True):
        assert bare(was) == bare(now)
    assert {row["subject"] for row in got} >= {ODD}


def bare(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in NEW_IN_EACH}


async def test_ci_rows_are_counted_and_found_like_all_others(gate: Gate):
    await with_rows(gate)
    world = gate.world
    odd = (await world.audit(subject=ODD))[0]
    answer = await world.client.get(
        "/api/v1/admin/orgs/acme/audit/summary",
        headers=world.admin,
        query_string={"actor_source": "oidc_github", "event": "install_allowed", "bucket": "day"},
    )
    summary = await answer.get_json()

    assert answer.status_code == 200, summary
    assert [row["id"] for row in await world.audit(oidc_binding_id=odd["oidc_binding_id"])] == [
        odd["id"]
    ]
    assert summary["total"] == 2
    without = await world.audit(event="install_allowed", actor_source="!oidc_*")
    assert [row["actor_source"] for row in without] == ["api_key"]
