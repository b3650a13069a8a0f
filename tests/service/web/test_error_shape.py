"""Every error of every path and method has one shape, and carries its request's id."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from quart.typing import TestClientProtocol as Client

from analytics.model.errors import StoreFault
from service.app.application import create_app
from service.app.composition import EXTENSION
from service.audit.refusals import TOO_MANY_EXPORTS, QueryTooSlow
from service.core.errors import Busy, Refusal, StoreUnavailable
from service.packages.refusals import PACKAGE_CACHE_FULL, RegistryLimited
from tests.conftest import World, bindings_path, refused
from tests.service.pages.page import fails

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}
LIST = bindings_path()
EXPORTS = ["/api/v1/admin/orgs/acme/audit/export", "/admin/ui/orgs/acme/audit/export"]


def concrete(rule: str) -> str:
    return (
        rule.replace("<slug>", "acme")
        .replace("<binding:binding_id>", "obind_0")
        .replace("<row:audit_id>", "aud_0")
        .replace("<any(system, light, dark):choice>", "dark")
    )


def rules(world: World) -> dict[str, set[str]]:
    """The methods of every path that is not a file."""
    found: dict[str, set[str]] = {}
    for rule in world.app.url_map.iter_rules():
        if rule.endpoint != "static":
            found.setdefault(rule.rule, set()).update(rule.methods or ())
    # Also the address of a row, which is of no row then.
    found["/api/v1/admin/orgs/<slug>/audit/sql"] |= {"GET", "HEAD"}
    return found


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api",
        "/api/v1",
        "/api/v1/admin/orgs/acme/nothing",
        "/api/v2/admin/orgs/acme/oidc-bindings",
        f"{LIST}/",
        f"{LIST}/obind_0/",
        f"{LIST}/obind_0/more",
        LIST.replace("/admin/", "//admin/"),
        LIST.replace("/acme/", "//"),
        LIST.replace("/api/", "/API/"),
        LIST.replace("oidc-bindings", "OIDC-bindings"),
        LIST.replace("oidc-bindings", "oidc_bindings"),
        LIST.replace("/admin/", "/./admin/"),
        f"{LIST}/../oidc-bindings",
        f"{LIST}.json",
        f"{LIST};v=1",
        "/api/v1/admin/orgs/acme/audit/",
        "/admin/ui/orgs/acme/audit/",
        *(f"{path}/" for path in EXPORTS),
        "/static/nothing.css",
        "/static/../audit.html",
        "/static/%2e%2e/audit.html",
        "/healthz/",
        "/sign-in/",
    ],
)
async def test_a_path_that_is_not_exactly_an_endpoints_is_404(shared_world: World, path: str):
    """Paths are case-sensitive, and nothing is tidied or redirected."""
    for method in ("GET", "POST", "DELETE"):
        answer = await shared_world.client.open(path, method=method, headers=shared_world.admin)
        if path.startswith("/static/") and method != "GET":
            assert await refused(answer) == (405, "method not allowed")
        else:
            assert (await refused(answer))[0] == 404
            assert "location" not in answer.headers


async def test_every_other_method_of_every_path_is_405_and_names_the_good_ones(
    shared_world: World,
):
    """Taken from the app's own list of paths. OPTIONS and TRACE are not answered either.

    But for the install proxy, which asks for credentials first, whatever the method; see
    tests/service/packages/proxy/test_requests.py.
    """
    wrong = []
    for rule, allowed in rules(shared_world).items():
        if rule.startswith("/proxy/"):
            continue
        for method in METHODS - allowed:
            answer = await shared_world.client.open(concrete(rule), method=method)
            named = answer.headers.get("allow")
            if (
                await refused(answer) != (405, "method not allowed")
                or named != ", ".join(sorted(allowed))
            ):  # fmt: skip
                wrong.append((method, rule, answer.status_code, named))

    assert wrong == []


@pytest.mark.parametrize("path", EXPORTS)
async def test_an_export_is_not_answered_to_head(shared_world: World, path: str):
    """It would record an export that was not received."""
    before = await shared_world.audit()

    answer = await shared_world.client.head(f"{path}?format=csv", headers=shared_world.admin)

    assert await refused(answer) == (405, "method not allowed")
    assert await shared_world.audit() == before


async def test_request_ids_are_the_servers_own_and_all_different(shared_world: World):
    """A client that could choose one could pass for another's request in the log."""
    chosen = "req_000000000000000000000000"
    answers = [
        await shared_world.client.get(
            path, headers={**shared_world.admin, "x-request-id": chosen, "request-id": chosen}
        )
        for path in (LIST, LIST, "/nothing", "/healthz", "/nothing")
    ]

    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    assert chosen not in ids


async def test_an_error_repeats_what_was_sent_without_breaking_its_json(shared_world: World):
    for name in ('"', "\\", "\x00", "\u2028", "</script>", "\ud800", "🦊"):
        answer = await shared_world.create(**{name: 1})
        assert await refused(answer) == (400, f"unknown field: {name}")


async def test_errors_are_not_cached_and_not_sniffed(shared_world: World):
    """A 404 of today may be a page tomorrow; JSON must not be run as anything else."""
    for path in ("/nothing", LIST):
        headers = (await shared_world.client.get(path)).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/nothing", LIST, "/docs", "/static/style.css"])
async def test_another_site_gets_no_handle_on_an_answer(shared_world: World, path: str):
    """Neither a window on our pages nor, as an image or a script, the time and size of a file."""
    headers = (await shared_world.client.get(path)).headers

    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_a_401_names_a_scheme(shared_world: World):
    """RFC 9110, 11.6.1; and one for which no browser asks for a password."""
    answer = await shared_world.client.get(LIST)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == (
        'Bearer realm="countersign", ApiKey realm="countersign"'
    )
    refused_row = await shared_world.client.get(LIST, headers=shared_world.session("stranger"))
    assert "www-authenticate" not in refused_row.headers


def refusal_classes(of: type[Refusal] = Refusal) -> set[type[Refusal]]:
    """Every kind of refusal that is loaded."""
    return {of}.union(*map(refusal_classes, of.__subclasses__()))


@pytest.mark.parametrize(
    ("status", "known"),
    [
        (429, {Busy, RegistryLimited, TOO_MANY_EXPORTS}),
        (503, {StoreUnavailable, PACKAGE_CACHE_FULL, QueryTooSlow}),
    ],
)
async def test_every_429_and_503_of_the_code_says_when_to_try_again(
    status: int, known: set[type[Refusal]]
):
    temporary = {one for one in refusal_classes() if getattr(one, "status", 0) == status}

    assert temporary > known
    assert [one for one in temporary if not one.retry_after_s] == []


@pytest.mark.parametrize("status", ["429", "503"])
async def test_every_429_and_503_of_the_document_says_when_to_try_again(
    shared_world: World, status: str
):
    document = await (await shared_world.client.get("/openapi.json")).get_json()
    answers = [
        (path, operation["responses"][status].get("headers", {}))
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if status in operation["responses"]
    ]

    assert answers
    assert [path for path, headers in answers if "retry-after" not in headers] == []


@pytest_asyncio.fixture(loop_scope="module")
async def away(shared_world: World, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a service whose database cannot be opened."""
    settings = msgspec.structs.replace(
        shared_world.services.settings, database_url=f"sqlite+aiosqlite:///{tmp_path}/gone/db"
    )
    app = create_app(settings)
    yield app.test_client()
    await app.extensions[EXTENSION].close()


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
async def test_every_503_of_every_path_says_when_to_try_again(
    shared_world: World, away: Client, accept: str
):
    proxied = {"authorization": f"Basic {b64encode(b'token:cs_unknown').decode()}"}
    headers = shared_world.admin | {"accept": accept}
    silent, unavailable = [], set()
    for rule, methods in rules(shared_world).items():
        given = proxied if rule.startswith("/proxy/") else headers  # it takes no admin token
        for method in methods:
            answer = await away.open(concrete(rule), method=method, headers=given)
            if answer.status_code == 503:
                unavailable.add(rule)
                silent += [] if int(answer.headers.get("retry-after", 0)) else [(method, rule)]

    assert silent == []
    assert unavailable >= {"/readyz", "/admin/ui/orgs/<slug>/audit", "/proxy/<slug>/<path:rest>"}
    assert len(unavailable) > 40


@pytest.mark.asyncio(loop_scope="function")
async def test_a_missing_file_says_when_to_try_again(world: World, monkeypatch):
    """It is no refusal of its own, but a fault of the query engine; pages show it their way."""
    fails(monkeypatch, "page", StoreFault("a segment is damaged"))
    for path in ("/api/v1/admin/orgs/acme/audit", "/admin/ui/orgs/acme/audit"):
        answer = await world.client.get(path, headers=world.admin)

        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
