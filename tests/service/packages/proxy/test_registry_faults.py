"""Whatever a registry sends in place of a document, what was good stays, and comes back."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from service.packages.proxy.circuit_breaker import FAILURES_MAX, CircuitState
from service.packages.proxy.document_cache import RETRY_AFTER
from service.packages.proxy.registries import PackageRegistry
from tests.conftest import SCRAPER
from tests.service.packages.install_tokens.jobs import INSTALL, bearer, new_key
from tests.service.packages.proxy.proxied import Proxied, shown, wheel_of
from tests.service.packages.proxy.registry import Answer, Asked, head

JSON = {"pypi": "application/vnd.pypi.simple.v1+json", "npm": "application/json"}
DOCUMENTS = {"pypi": "pypi/simple/left-pad/", "npm": "npm/left-pad"}
SOURCES = {"pypi": "/simple/left-pad/", "npm": "/npm/left-pad"}
PORTAL = b'<!doctype html><title>Sign in</title><a href="/login">Sign in to this network</a>'


def sends(body: bytes, kind: str = "text/html", status: int = 200) -> Answer:
    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(status, content_type=kind, content_length=str(len(body))) + body)

    return answer


async def reset(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def half(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(head(content_type="application/json", content_length="1000") + b'{"name": "left-p')


EMPTY = {
    "pypi": b'{"meta": {"api-version": "1.1"}, "name": "left-pad", "versions": [], "files": []}',
    "npm": b'{"name": "left-pad", "dist-tags": {}, "versions": {}, "time": {}}',
}
OTHER = {
    "pypi": EMPTY["pypi"].replace(b"left-pad", b"right-pad"),
    "npm": EMPTY["npm"].replace(b"left-pad", b"right-pad"),
}


def bad_answers(ecosystem: str) -> dict[str, Answer]:
    kind = JSON[ecosystem]
    return {
        "reset": reset,
        "half": half,
        "500": sends(b"", status=500),
        "portal": sends(PORTAL),
        "portal called JSON": sends(PORTAL, kind),
        "no body": sends(b"", kind),
        "cut JSON": sends(EMPTY[ecosystem][:-20], kind),
        "another package": sends(OTHER[ecosystem], kind),
    }


BAD = [(ecosystem, name) for ecosystem in SOURCES for name in bad_answers(ecosystem)]
EMPTIED = [(ecosystem, "emptied") for ecosystem in SOURCES]


def answer_of(ecosystem: str, name: str) -> Answer:
    answers = {**bad_answers(ecosystem), "emptied": sends(EMPTY[ecosystem], JSON[ecosystem])}
    return answers[name]


def publish(proxied: Proxied, ecosystem: str, *versions: str) -> None:
    if ecosystem == "pypi":
        proxied.publishes("left-pad", *(wheel_of("left-pad", version) for version in versions))
    else:
        proxied.publishes_npm("left-pad", *versions)


async def document(proxied: Proxied, ecosystem: str) -> Any:
    return await proxied.get(DOCUMENTS[ecosystem], accept=JSON[ecosystem])


@pytest.mark.parametrize(("ecosystem", "fault"), [*BAD, *EMPTIED])
async def test_nothing_good_is_replaced(proxied: Proxied, ecosystem: str, fault: str):
    publish(proxied, ecosystem, "1.0.0")
    good = await document(proxied, ecosystem)
    assert "cache-status" not in good.headers
    proxied.registry.does(SOURCES[ecosystem], answer_of(ecosystem, fault))
    proxied.clock.now += timedelta(minutes=5)
    stale = await document(proxied, ecosystem)

    assert stale.status_code == 200
    assert await stale.get_data() == await good.get_data()
    assert stale.headers["cache-status"] == "countersign; hit; ttl=-240"

    publish(proxied, ecosystem, "1.0.0", "1.1.0")
    proxied.clock.now += RETRY_AFTER
    fresh = await document(proxied, ecosystem)
    assert "cache-status" not in fresh.headers
    assert b"1.1.0" in await fresh.get_data()


@pytest.mark.parametrize(("ecosystem", "fault"), BAD)
async def test_what_was_never_good_is_a_502(proxied: Proxied, ecosystem: str, fault: str):
    proxied.registry.does(SOURCES[ecosystem], answer_of(ecosystem, fault))
    assert (await shown(await document(proxied, ecosystem)))[0] == 502

    publish(proxied, ecosystem, "1.0.0")
    proxied.clock.now += RETRY_AFTER
    assert (await document(proxied, ecosystem)).status_code == 200


async def test_a_project_in_quarantine_is_empty_at_once(proxied: Proxied):
    """PyPI removes the files of malware, and says so (PEP 792)."""
    publish(proxied, "pypi", "1.0.0")
    await document(proxied, "pypi")
    page = EMPTY["pypi"].replace(
        b'"files"', b'"project-status": {"status": "quarantined"}, "files"'
    )
    proxied.registry.does(SOURCES["pypi"], sends(page, JSON["pypi"]))
    proxied.clock.now += timedelta(minutes=5)
    answer = await document(proxied, "pypi")

    assert (await answer.get_json())["files"] == []


async def test_a_package_that_was_unpublished_is_empty_at_once(proxied: Proxied):
    """Npm's registry answers 200, and says so in `time`."""
    publish(proxied, "npm", "1.0.0")
    await document(proxied, "npm")
    body = b'{"name": "left-pad", "time": {"unpublished": {"versions": ["1.0.0"]}}}'
    proxied.registry.does(SOURCES["npm"], sends(body, JSON["npm"]))
    proxied.clock.now += timedelta(minutes=5)
    answer = await document(proxied, "npm")

    assert (await answer.get_json())["versions"] == {}


class TestOpenCircuit:
    """The registry has failed several times in a row."""

    @pytest.fixture
    async def paused(self, proxied: Proxied) -> Proxied:
        """A proxy that has one package of each ecosystem, and does not ask the registries."""
        for ecosystem in SOURCES:
            publish(proxied, ecosystem, "1.0.0")
            await document(proxied, ecosystem)
        for registry in public_registries(proxied):
            for _ in range(FAILURES_MAX):
                attempt = registry.upstream.circuits[registry.upstream.registry.origin].begin()
                assert attempt is not None
                attempt.fail()
            assert registry.upstream.state is CircuitState.OPEN
        proxied.clock.now += timedelta(minutes=5)
        return proxied

    async def test_what_is_cached_is_served_and_marked(self, paused: Proxied):
        asked = len(paused.registry.asked)
        for ecosystem in SOURCES:
            answer = await document(paused, ecosystem)
            assert answer.status_code == 200
            assert answer.headers["cache-status"] == "countersign; hit; ttl=-240"

        assert len(paused.registry.asked) == asked

    @pytest.mark.parametrize("path", ["pypi/simple/other/", "npm/other", "npm/-/npm/v1/keys"])
    async def test_all_else_is_refused_for_now(self, paused: Proxied, path: str):
        answer = await paused.get(path)

        assert answer.headers["retry-after"] == "5"
        status, text = await shown(answer)
        assert status == 503
        assert "has not been answering" in text

    async def test_a_file_that_is_not_cached_is_refused_for_now(self, paused: Proxied):
        answer = await paused.get(await paused.path_of("left-pad"))

        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert await paused.events() == []

    async def test_operators_see_it(self, paused: Proxied):
        client, world = paused.client, paused.world
        health = await client.get("/healthz")
        page = await client.get("/admin/ui/orgs/acme/proxy", headers=world.session("owner"))
        metrics = await client.get("/metrics", headers=SCRAPER)
        exposed = await metrics.get_data(as_text=True)

        assert health.status_code == 200
        assert (await health.get_json())["registries"] == {"npm": "open", "pypi": "open"}
        assert (await page.get_data(as_text=True)).count("does not answer</span>") == 2
        for ecosystem in SOURCES:
            labels = f'origin="{paused.registry.url}",registry="{ecosystem}"'
            assert f"countersign_proxy_circuit_open{{{labels}}} 1.0" in exposed
        labels = f'state="waiting",tenant="{world.acme.id}"'
        assert f"countersign_proxy_upstream_requests{{{labels}}} 0.0" in exposed


async def test_too_many_requests_are_refused_for_now(proxied: Proxied):
    publish(proxied, "pypi", "1.0.0")
    (registry, _) = public_registries(proxied)
    org = proxied.world.acme.id
    places = [await registry.upstream.admit(org) for _ in range(56)]
    waiting = [asyncio.create_task(registry.upstream.admit(org)) for _ in range(448)]
    await asyncio.sleep(0)
    refused = await document(proxied, "pypi")
    other = await new_key(proxied.world, INSTALL, slug="other")
    path = f"/proxy/other/{DOCUMENTS['pypi']}"
    served = await proxied.client.get(path, headers=[bearer(other.secret)])
    for task in waiting:
        task.cancel()
    for place in places:
        place.release()

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert served.status_code == 200


def public_registries(proxied: Proxied) -> list[PackageRegistry[Any]]:
    proxy = proxied.world.services.proxy
    return [each.public for each in proxy.registries.values() if each.public is not None]
