"""Long computations run in threads, so that the event loop turns meanwhile."""

import asyncio
import gc
import gzip
import threading
from collections.abc import Callable
from typing import Any

import jinja2
import pytest

from service.app import system
from service.audit import tenant_log
from service.packages.policy import document
from service.pages import streaming
from service.pages.trust import binding_form
from service.trust.bindings import cache
from service.trust.explain import explain_api as explain
from service.trust.reports import access_api as reports
from service.trust.reports.access_report import AccessReport, report_access
from service.web import bodies, compression
from tests.conftest import World

ORG = "/api/v1/admin/orgs/acme"


def threads_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """The threads in which `module` calls its function `name` from now on."""
    called: Callable[..., Any] = getattr(module, name)
    threads: list[int] = []

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return called(*arguments)

    monkeypatch.setattr(module, name, noted)
    return threads


@pytest.mark.parametrize(("form", "name"), [("json", "report_json"), ("csv", "report_csv")])
async def test_an_access_report_is_made_in_a_thread(world: World, monkeypatch, form, name):
    """It has a line for each of tens of thousands of members, keys and bindings."""
    threads = threads_of(monkeypatch, reports, name)
    response = await world.client.get(f"{ORG}/access-report?format={form}", headers=world.admin)

    assert response.status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("form", ["json", "csv"])
async def test_an_access_report_is_freed_in_a_thread(world: World, monkeypatch, form):
    await world.create()
    made: list[AccessReport] = []

    async def noted(*arguments: Any) -> AccessReport:
        made.append(await report_access(*arguments))
        assert not any(map(gc.is_tracked, [*made[0].members, *made[0].bindings]))
        return made[0]

    monkeypatch.setattr(reports, "report_access", noted)
    response = await world.client.get(f"{ORG}/access-report?format={form}", headers=world.admin)

    assert response.status_code == 200
    (report,) = made
    assert not any((report.members, report.teams, report.api_keys, report.bindings))


async def test_the_releases_of_a_preview_are_listed_in_a_thread(world: World, monkeypatch):
    """They are 10,000."""
    threads = threads_of(monkeypatch, tenant_log, "groups_of")
    response = await world.client.post(
        f"{ORG}/policy/preview", json={"deny": []}, headers=world.admin
    )

    assert response.status_code == 200
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_the_documentation_is_made_in_a_thread(world: World, monkeypatch, path):
    """It takes 50 ms, and is compressed in each coding."""
    threads = threads_of(monkeypatch, system, "openapi_document")
    packed = threads_of(monkeypatch, system, "compressed")
    response = await world.client.get(path)

    assert response.status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads + packed


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_the_documentation_is_made_once_for_all_who_ask_first(
    world: World, monkeypatch, path
):
    """Sixty clients that asked at once occupied all threads for seconds."""
    threads = threads_of(monkeypatch, system, "openapi_document")
    answers = await asyncio.gather(*(world.client.get(path) for _ in range(8)))

    assert {answer.status_code for answer in answers} == {200}
    assert len(threads) == 1


async def test_templates_are_compiled_once_for_all_who_ask_first(world: World, monkeypatch):
    """Threads that compile the same would take their time from other requests."""
    templates = type(world.app.jinja_env)
    threads = threads_of(monkeypatch, templates, "_with_all_used")
    path = "/admin/ui/orgs/acme/audit"
    asked = (world.client.get(path, headers=world.admin) for _ in range(8))
    answers = await asyncio.gather(*asked)

    assert {answer.status_code for answer in answers} == {200}
    assert len(threads) == 1


async def test_templates_are_compiled_in_a_thread(world: World, monkeypatch):
    """With all that they extend and import: that takes up to 100 ms."""
    templates = type(world.app.jinja_env)
    threads = threads_of(monkeypatch, templates, "compile")
    world.app.jinja_env.bytecode_cache = None
    response = await world.client.get("/admin/ui/orgs/acme/audit", headers=world.admin)

    assert response.status_code == 200
    assert len(threads) > 3
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_long_answers_are_compressed_in_a_thread(world: World, monkeypatch, coding):
    """A short one is not: the thread would take longer."""
    threads = threads_of(monkeypatch, compression, "compressed")
    monkeypatch.setattr(compression, "THREAD_BYTES_MIN", 20_000)
    headers = world.admin | {"accept-encoding": coding}
    long = await world.client.get("/admin/ui/orgs/acme/members", headers=headers)
    short = await world.client.get("/admin/ui/orgs/acme/rejected", headers=headers)

    assert long.headers["content-encoding"] == short.headers["content-encoding"] == coding
    assert threading.get_ident() not in threads[:1]
    assert threads[1:] == [threading.get_ident()]


async def test_pages_are_rendered_in_a_thread(world: World, monkeypatch):
    """10,000 projects to choose from take 50 ms."""
    threads = threads_of(monkeypatch, jinja2.Template, "render")
    response = await world.client.get("/admin/ui/orgs/acme/bindings/new", headers=world.admin)

    assert response.status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_token_is_compared_with_all_bindings_in_a_thread(world: World, monkeypatch):
    """There may be 10,000."""
    threads = threads_of(monkeypatch, explain, "explain_token")
    body = {"claims": {"iss": "https://token.actions.githubusercontent.com", "sub": "repo:a/b"}}
    response = await world.client.post(
        f"{ORG}/oidc-bindings/explain", json=body, headers=world.admin
    )

    assert response.status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_bindings_are_prepared_for_matching_in_a_thread(world: World, monkeypatch):
    """For 10,000 it takes 40 ms."""
    threads = threads_of(monkeypatch, cache, "candidates_of")
    await cache.BindingCache(world.services.store).candidates(world.acme)

    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_gzip_body_is_decompressed_in_a_thread(world: World, monkeypatch):
    """5 MB of rows take 20 ms."""
    threads = threads_of(monkeypatch, bodies, "_gunzip")
    headers = world.admin | {"content-type": "application/json", "content-encoding": "gzip"}
    content = gzip.compress(b'[{"event": "install_allowed", "packageName": "p"}]')
    response = await world.client.post(f"{ORG}/audit/events", headers=headers, data=content)

    assert (await response.get_json())["accepted"] == 1
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(("method", "path"), [("PUT", "/policy"), ("POST", "/policy/preview")])
async def test_a_policy_is_parsed_in_a_thread(world: World, monkeypatch, method, path):
    """Its 5,800 ranges take 60 ms."""
    threads = threads_of(monkeypatch, document, "_check_counts")
    headers = world.admin | {"if-match": "*"}
    response = await world.client.open(
        ORG + path, method=method, json={"deny": []}, headers=headers
    )

    assert response.status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_each_part_of_a_streamed_page_is_rendered_in_a_thread(world: World, monkeypatch):
    """A policy of 5,800 ranges takes 20 ms."""
    threads = threads_of(monkeypatch, streaming, "_next_part")
    response = await world.client.get("/admin/ui/orgs/acme/policy", headers=world.admin)

    assert response.status_code == 200
    assert "</html>" in await response.get_data(as_text=True)
    assert len(threads) > 1
    assert threading.get_ident() not in threads


async def test_teams_to_choose_from_are_found_in_a_thread(world: World, monkeypatch):
    """For 10,000 it takes 15 ms to see who may create bindings of them."""
    threads = threads_of(monkeypatch, binding_form, "may_create")
    response = await world.client.get("/admin/ui/orgs/acme/bindings/new", headers=world.admin)

    assert response.status_code == 200
    assert threads.count(threading.get_ident()) == 1, "of the organisation itself"
    assert len(threads) > 1
