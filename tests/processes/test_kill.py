"""Pulling the plug: after kill -9 a change is there with its audit row, or neither is."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from service.store.catalog import list_segment_ids
from service.trust.bindings.changes import REPLACED_BY
from tests.budgets import budget
from tests.conftest import binding_body, bindings_path
from tests.processes.homes import Home, Server, all_bindings, all_entries, eventually

pytestmark = pytest.mark.slow

KILLS = budget(4, 22)
CLIENTS = 3
EAGER = {
    "seal_rows": "1",
    "seal_interval_s": "0.05",
    "sweep_interval_s": "0.05",
    "orphan_grace_s": "0.5",
}
"""A sealer and a sweeper at work all the time, so that many kills hit them."""


@dataclass
class Witness:
    """What clients were promised: ids whose creation, and whose revocation, was answered 2xx."""

    created: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def change_until_cut_off(server: Server, seed: str, witness: Witness) -> None:
    """Create bindings, revoke about half of them and replace others, until the server is gone."""
    chance = random.Random(seed)
    with server.client() as client:
        for number in range(10_000):
            body = binding_body(sub_pattern=f"repo:acme/{seed}/{number}")
            try:
                answer = client.post(bindings_path(), json=body)
                assert answer.status_code == 201, (seed, answer.text)
                binding_id = answer.json()["id"]
                witness.created.append(binding_id)
                if chance.random() < 0.5:
                    answer = client.delete(bindings_path(binding_id=binding_id))
                    assert answer.status_code == 200, (seed, answer.text)
                    witness.revoked.append(binding_id)
                elif chance.random() < 0.5:
                    path = f"{bindings_path(binding_id=binding_id)}/replace"
                    answer = client.post(path, json={"event_names": ["push", "release"]})
                    assert answer.status_code == 201, (seed, answer.text)
                    witness.replaced.append(binding_id)
                    witness.revoked.append(binding_id)
                    witness.created.append(answer.json()["id"])
            except httpx2.TransportError:
                return


def kill_amid_changes(server: Server, chance: random.Random, round_name: str) -> Witness:
    """Kill `server` at a random moment while clients work on it; what they were promised.

    The moment is a number of changes, and a little later: a slow machine makes as many.
    """
    witness = Witness()
    changes, later_s = chance.randrange(1, 24), chance.uniform(0, 0.02)
    clients = [
        threading.Thread(
            target=change_until_cut_off, args=(server, f"{round_name}/{number}", witness)
        )
        for number in range(CLIENTS)
    ]
    for thread in clients:
        thread.start()
    eventually(lambda: len(witness.created) >= changes, f"{changes} bindings", every_s=0.001)
    time.sleep(later_s)
    server.process.kill()
    for thread in clients:
        thread.join()
    server.process.wait()
    return witness


def check_history(server: Server, promised: Witness, seed: str) -> None:
    """Every binding has its rows and every row its binding, and nothing promised is missing."""
    with server.client() as client:
        bindings = all_bindings(client)
        created = all_entries(client, event="oidc_binding_created", limit=97)
        revoked = all_entries(client, event="oidc_binding_revoked", limit=97)
    ids = [binding["id"] for binding in bindings]
    ended = [binding["id"] for binding in bindings if binding["revokedAt"] is not None]
    assert Counter(row["payload"]["binding_id"] for row in created) == Counter(ids), seed
    assert Counter(row["payload"]["binding_id"] for row in revoked) == Counter(ended), seed
    assert len(set(ids)) == len(ids), seed
    assert not set(promised.created) - set(ids), seed
    assert not set(promised.revoked) - set(ended), seed
    check_replacements(bindings, seed)


def check_replacements(bindings: list[dict[str, Any]], seed: str) -> None:
    """A binding was replaced with its successor there from the same instant on, or not at all."""
    by_id = {binding["id"]: binding for binding in bindings}
    for binding in bindings:
        reason = binding["revokedReason"] or ""
        if reason.startswith(REPLACED_BY):
            successor = by_id[reason.removeprefix(REPLACED_BY)]
            assert successor["addedAt"] == binding["revokedAt"], seed
            assert successor["subPattern"] == binding["subPattern"], seed


@pytest.mark.parametrize("seed", [1])
def test_a_killed_server_leaves_each_change_with_its_audit_row_or_without_both(home, seed):
    """A change and its row commit together, and what was answered survives."""
    chance = random.Random(seed)
    promised = Witness()
    for number in range(KILLS):
        name = f"seed-{seed}-kill-{number}"
        server = home.serve(**EAGER)
        check_history(server, promised, name)
        witness = kill_amid_changes(server, chance, name)
        promised.created += witness.created
        promised.revoked += witness.revoked
        promised.replaced += witness.replaced
    survivor = home.serve(**EAGER)
    check_history(survivor, promised, f"seed-{seed}")
    assert promised.created, "every kill came before a client could do anything"
    assert promised.revoked
    assert promised.replaced
    assert list(home.data_dir.rglob("*.parquet")), "every kill came before the sealer"
    eventually(lambda: not orphans(home), "files that no catalog line names are removed")
    check_history(survivor, promised, f"seed-{seed}")


def orphans(home: Home) -> set[str]:
    """Files in the audit folder that the catalog does not name."""

    async def known(services):
        async with services.store.read() as session:
            return await list_segment_ids(session)

    files = [path for path in (home.data_dir / "audit").rglob("*") if path.is_file()]
    named = home.change(known)
    kinds = {".parquet", ".index"}
    return {path.name for path in files if path.suffix not in kinds or path.stem not in named}
