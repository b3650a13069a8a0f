"""Several processes on one data dir behave as one service."""

import asyncio
import multiprocessing
import random
from collections import Counter

import httpx2
import pytest

from service.app.bootstrap import prepare
from service.core.secrets import current_admin_token
from service.core.settings import Settings
from service.trust.refusals import BindingExists
from tests.budgets import budget, only_full
from tests.conftest import ADMIN_TOKEN, binding_body, bindings_path
from tests.processes.homes import (
    DEADLINE_S,
    Home,
    Server,
    add_acme,
    all_bindings,
    all_entries,
)

pytestmark = pytest.mark.slow

PROCESSES = budget(2, 4)
REQUESTS = 50
FIRST_STARTS = 25


def start_together(home: Home, **changes: str) -> list[Server]:
    """Servers that were all started before the first was ready."""
    servers = [home.start(**changes) for _ in range(PROCESSES)]
    return [server.wait_ready() for server in servers]


async def create_everywhere(
    servers: list[Server], body: dict[str, object]
) -> list[httpx2.Response]:
    """The answers to REQUESTS equal creates, all in flight at once, spread over `servers`."""
    limits = httpx2.Limits(max_connections=REQUESTS)
    async with httpx2.AsyncClient(
        headers={"x-service-admin-token": ADMIN_TOKEN},
        limits=limits,
        timeout=DEADLINE_S,
        trust_env=False,
    ) as client:
        urls = [f"{servers[n % len(servers)].url}{bindings_path()}" for n in range(REQUESTS)]
        return await asyncio.gather(*(client.post(url, json=body) for url in urls))


def test_of_fifty_racing_creates_one_wins(empty_home):
    """The servers start at once on a data dir that does not exist yet: migrations race, too."""
    servers = start_together(empty_home)
    empty_home.change(add_acme)

    repositories = ["1", "2", "3"][: budget(1, 3)]
    for repository in repositories:
        body = binding_body(repository_id=repository)
        answers = asyncio.run(create_everywhere(servers, body))

        assert Counter(answer.status_code for answer in answers) == {201: 1, 409: REQUESTS - 1}
        refusals = {answer.text for answer in answers if answer.status_code == 409}
        assert refusals == {f'{{"error":"{BindingExists.text}"}}'}
        winner = next(answer.json() for answer in answers if answer.status_code == 201)
        for server in servers:
            with server.client() as client:
                there = [b for b in all_bindings(client) if b["repositoryId"] == repository]
                assert [binding["id"] for binding in there] == [winner["id"]]
                rows = all_entries(client, event="oidc_binding_created", subject=winner["id"])
                assert [row["payload"]["repository_id"] for row in rows] == [repository]
    with servers[0].client() as client:
        assert len(all_entries(client, event="oidc_binding_created")) == len(repositories)


@only_full
def test_preparing_a_new_data_dir_many_times_at_once_gives_one_result(tmp_path):
    """Servers that start together seldom meet at a step; here they wait for each other."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(PROCESSES), context.Queue()
    workers = [
        context.Process(target=_prepare_in_step, args=(tmp_path, barrier, answers))
        for _ in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    try:
        found = [answers.get(timeout=DEADLINE_S) for _ in range(PROCESSES * FIRST_STARTS)]
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
            worker.close()
        answers.close()

    assert [failure for _, _, failure in found if failure] == []
    assert len({secrets for _, secrets, _ in found}) == FIRST_STARTS
    assert len({(number, secrets) for number, secrets, _ in found}) == FIRST_STARTS


def _prepare_in_step(folder, barrier, answers):
    for number in range(FIRST_STARTS):
        settings = Settings(data_dir=folder / str(number))
        barrier.wait()
        try:
            ready = asyncio.run(prepare(settings))
            answers.put((number, (current_admin_token(ready), ready.secret_key), None))
        except Exception as error:
            answers.put((number, None, repr(error)))


def test_sealers_of_all_processes_lose_and_double_nothing(empty_home):
    seed = 1
    chance = random.Random(seed)
    eager = {"seal_rows": "1", "seal_interval_s": "0.05", "orphan_grace_s": "60"}
    servers = start_together(empty_home, **eager)
    empty_home.change(add_acme)

    created = []
    for number in range(budget(15, 40)):
        server = chance.choice(servers)
        with server.client() as client:
            answer = client.post(bindings_path(), json=binding_body(repository_id=str(number + 1)))
            assert answer.status_code == 201, (seed, answer.text)
            created.append(answer.json()["id"])
        with chance.choice(servers).client() as client:
            rows = all_entries(client, event="oidc_binding_created", limit=30)
            assert [row["subject"] for row in rows] == created[::-1], seed
