"""Every request to the proxy: who may make it, by which method, and what errors look like."""

from itertools import product

from tests.issuers.issuer import Issuer
from tests.polling import until
from tests.service.gates import Gate
from tests.service.packages.install_tokens.jobs import INSTALL, basic, bearer, exchanged, new_key
from tests.service.packages.proxy.proxied import Proxied, proxied_gate, shown, wheel_of
from tests.service.packages.proxy.registry import FakeRegistry

PATHS = [
    "",
    "unknown",
    "pypi",
    "pypi/",
    "pypi/simple",
    "pypi/simple/",
    "pypi/simple/foo",
    "pypi/simple/foo/",
    "pypi/simple/foo/bar",
    "pypi/files/a/b.whl",
    "pypi/files/a",
    "npm",
    "npm/",
    "npm/left-pad",
    "npm/@acme%2flib",
    "npm/left-pad/-/left-pad-1.0.0.tgz",
    "npm/-/ping",
    "npm/-/whoami",
    "npm/-/npm/v1/keys",
    "npm/-/unknown",
]


async def test_every_path_asks_for_basic_credentials(proxied: Proxied):
    """Package managers send them only where they are asked for so; never a page for people."""
    carriers = ([], [("accept", "text/html")], [bearer("csi_wrong")], [basic("a", "b")])
    methods = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS")
    for method, path, headers in product(methods, PATHS, carriers):
        answer = await proxied.bare(path, *headers, method=method)
        assert answer.status_code == 401, (method, path, headers)
        assert answer.headers["www-authenticate"] == 'Basic realm="countersign"'
        assert answer.headers["content-type"] == "application/json"
    assert proxied.registry.asked == []


async def test_a_key_is_taken_from_every_carrier(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    path = await proxied.path_of("foo")
    secret = proxied.key.secret
    carriers = [
        ("x-service-api-key", secret),
        bearer(secret),
        basic("anything", secret),
        basic("", secret),
        basic(secret, ""),
        basic(secret, secret),
    ]
    for carrier in carriers:
        assert (await proxied.bare(path, carrier)).status_code == 200

    (row,) = await proxied.rows()
    assert row["actor"] == proxied.key.id


async def test_a_token_is_taken_from_every_carrier(gate: Gate, registry: FakeRegistry):
    key = await new_key(gate.world, INSTALL)
    token = (await exchanged(gate, key))["token"]
    async with proxied_gate(gate, registry) as proxied:
        proxied.publishes("foo", wheel_of("foo", "1.0"))
        path = await proxied.path_of("foo")
        for carrier in (bearer(token), basic("any", token), basic(token, ""), basic(token, token)):
            assert (await proxied.bare(path, carrier)).status_code == 200
        assert len(await proxied.rows()) == 1

        ci_token = gate.issuer.sign(jti="another")
        headers = [("x-service-api-key", key.secret), ("x-service-ci-oidc", ci_token)]
        assert (await proxied.bare(path, *headers)).status_code == 200
        assert (await proxied.bare(path, basic(key.secret, ci_token))).status_code == 200
        rows = await proxied.rows()
        assert len(rows) == 2
        assert {row["actor_source"] for row in rows} == {"oidc_github"}
        assert {row["run_id"] for row in rows} != {None}


async def test_a_bad_token_beside_a_good_key_is_served_unattributed(
    gate: Gate, registry: FakeRegistry
):
    """A build does not fail because a token did; the rejection is logged."""
    key = await new_key(gate.world, INSTALL)
    async with proxied_gate(gate, registry) as proxied:
        proxied.publishes("foo", wheel_of("foo", "1.0"))
        path = await proxied.path_of("foo")
        token = Issuer(url="https://issuer.elsewhere.example").sign()
        assert (await proxied.bare(path, basic(key.secret, token))).status_code == 200
        (row,) = await proxied.rows()

    assert (row["actor_source"], row["oidc_binding_id"]) == ("api_key", None)
    assert any(line["event"].startswith("auth_failure_") for line in gate.logs)


async def test_credentials_that_differ_are_refused(proxied: Proxied):
    """Choosing one would let a request act as what its sender has replaced."""
    other = await new_key(proxied.world, INSTALL)
    answer = await proxied.bare(
        "pypi/simple/", bearer(proxied.key.secret), ("x-service-api-key", other.secret)
    )

    assert (await shown(answer))[0] == 400


async def test_another_organisations_proxy_is_forbidden(proxied: Proxied):
    for path in ("pypi/simple/foo/", "npm/left-pad", "unknown"):
        assert (await shown(await proxied.send("GET", path, slug="other")))[0] == 403
        assert await shown(await proxied.send("GET", path, slug="nowhere")) == (
            404,
            "Org not found",
        )
    assert proxied.registry.asked == []


async def test_nothing_is_published(proxied: Proxied):
    """Npm prints the text."""
    paths = ("npm/left-pad", "npm/@acme%2flib", "pypi/simple/", "pypi/legacy/")
    for method, path in product(("PUT", "POST", "DELETE", "PATCH"), paths):
        answer = await proxied.send(method, path)
        status, text = await shown(answer)
        assert (status, answer.headers["allow"]) == (405, "GET, HEAD"), (method, path)
        assert "publishing is not supported" in text
    assert proxied.registry.asked == []


async def test_other_methods_and_paths_are_plain_errors(proxied: Proxied):
    for method, path, status in [
        ("OPTIONS", "npm/left-pad", 405),
        ("POST", "unknown", 405),
        ("GET", "unknown", 404),
        ("GET", "pypi/simple/foo/bar", 404),
        ("GET", "npm/", 404),
    ]:
        answer = await proxied.send(method, path, accept="text/html")
        assert (await shown(answer))[0] == status


async def test_the_list_of_projects_is_empty(proxied: Proxied):
    html = await proxied.get("pypi/simple/", accept="text/html")
    listed = await proxied.get("pypi/simple/", accept="application/vnd.pypi.simple.v1+json")

    assert "no list of projects" in await html.get_data(as_text=True)
    assert (await listed.get_json())["projects"] == []
    assert proxied.registry.asked == []


async def test_no_credential_reaches_the_registry(proxied: Proxied):
    """Nor the client's name and address."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    await proxied.get(await proxied.path_of("foo"), user_agent="pip/26", cookie="a=b")

    assert len(proxied.registry.asked) == 2
    for asked in proxied.registry.asked:
        assert not {"authorization", "cookie", "x-service-api-key"} & asked.headers.keys()
        assert proxied.key.secret not in str(asked.headers)
        assert asked.headers["user-agent"] == "countersign-proxy"


async def test_a_file_in_memory_is_decided_on_and_recorded_like_any_other(proxied: Proxied):
    """Its bytes are there already; whether they may be sent is asked each time."""
    proxied.publishes("bar", wheel_of("bar", "1.0", b"short"))
    path = await proxied.path_of("bar")
    packages = proxied.world.services.packages
    await proxied.get(path)
    await until(lambda: not packages.files._downloads)
    await proxied.get(path)
    for kept in proxied.world.services.settings.package_cache_dir.glob("files/kept/*/*"):
        kept.unlink()

    other = await new_key(proxied.world, INSTALL)
    answer = await proxied.bare(path, bearer(other.secret), ("range", "bytes=0-2"))
    assert (answer.status_code, await answer.get_data()) == (206, b"sho")
    assert packages.files.counts["downloads"] == 1
    assert await proxied.events() == ["install_allowed"] * 2
    await proxied.policy(deny=[{"ecosystem": "pypi", "package": "bar"}])
    assert (await proxied.get(path)).status_code == 302


async def test_metrics_count_installs_and_uses_of_the_caches(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    path = await proxied.path_of("foo")
    await proxied.get(path)
    files = proxied.world.services.packages.files
    await until(lambda: not files._downloads)  # it is in the cache a moment after its last byte
    await proxied.get(path)
    await proxied.policy(deny=[{"ecosystem": "pypi", "package": "foo"}])
    await proxied.get(path)
    metrics = proxied.world.services.metrics.exposition().decode()

    for line in (
        'countersign_proxy_installs_total{ecosystem="pypi",event="install_allowed"} 1.0',
        'countersign_proxy_installs_total{ecosystem="pypi",event="blocklist_hit"} 1.0',
        'countersign_proxy_cache_uses_total{cache="files",result="downloads"} 1.0',
        'countersign_proxy_cache_uses_total{cache="files",result="hits"} 1.0',
        'countersign_proxy_cache_uses_total{cache="documents",result="fetched"} 1.0',
        'countersign_proxy_upstream_seconds_count{ecosystem="pypi"} 2.0',
    ):
        assert line in metrics
    assert "foo" not in metrics
