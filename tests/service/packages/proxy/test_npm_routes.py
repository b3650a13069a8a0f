"""npm's registry API over HTTP: documents, tarballs, tags, and what npm asks beside."""

import gzip
import json
import threading
from typing import Any

import pytest

from service.packages.npm.audit_queries import AT_ONCE_BYTES, QUERY_BYTES_MAX
from service.packages.npm.ecosystem import NPM
from tests.service.packages.install_tokens.jobs import bearer
from tests.service.packages.proxy.proxied import Proxied, deny, npm_content, shown

ABBREVIATED = "application/vnd.npm.install-v1+json"
FIRST_PARTY = {"ecosystem": "npm", "package": "@acme/*", "registry": "internal"}


def deprecated(document: dict[str, Any]) -> dict[str, Any]:
    """What each version is deprecated for."""
    return {name: version.get("deprecated") for name, version in document["versions"].items()}


@pytest.mark.parametrize("path", ["npm/@acme/lib", "npm/@acme%2flib", "npm/@acme%2Flib"])
async def test_a_scoped_name_is_written_in_each_way(proxied: Proxied, path: str):
    """Npm and pnpm escape its slash, yarn does not always."""
    proxied.publishes_npm("@acme/lib", "1.0.0")
    answer = await proxied.get(path)
    tarball = (await answer.get_json())["versions"]["1.0.0"]["dist"]["tarball"]

    assert tarball == "http://localhost:8080/proxy/acme/npm/@acme/lib/-/lib-1.0.0.tgz"
    assert [asked.path for asked in proxied.registry.asked] == ["/npm/@acme%2Flib"]
    for file in ("@acme/lib/-/lib-1.0.0.tgz", "@acme%2flib/-/lib-1.0.0.tgz"):
        served = await proxied.get(f"npm/{file}")
        assert await served.get_data() == npm_content("@acme/lib", "1.0.0")
    (row,) = await proxied.rows()
    assert (row["packageName"], row["version"], row["ecosystem"]) == ("@acme/lib", "1.0.0", "npm")


async def test_names_are_case_sensitive(proxied: Proxied):
    """As npm has them: `JSONStream` is no other spelling of a name."""
    proxied.publishes_npm("JSONStream", "1.0.0")

    assert (await proxied.get("npm/JSONStream")).status_code == 200
    assert (await proxied.get("npm/jsonstream")).status_code == 404


async def test_what_can_be_no_name_never_reaches_the_registry(proxied: Proxied):
    for name in (
        "..",
        "%2e%2e",
        "@acme",
        "@acme%2f..",
        "@acme%2f%2e%2e%2flodash",
        "a%2fb",
        ".hidden",
        "node_modules",
        "%00",
        "f" * 300,
        "fo%C3%B6",
        "a%5cb",
        "a%20b",
        "@%2fb",
        "a%3fb",
        "%ff",
    ):
        assert (await shown(await proxied.get(f"npm/{name}")))[0] == 404, name
        assert {asked.path for asked in proxied.registry.asked} <= {"/npm/a"}


async def test_a_blocked_version_is_marked_and_its_tag_moves(proxied: Proxied):
    proxied.publishes_npm("left-pad", "1.0.0", "1.1.0", "1.2.0")
    await proxied.policy(deny=[deny("npm", "left-pad", ">=1.1.0", id="r1")])
    for accept in (ABBREVIATED, "application/json"):
        document = await proxied.document("left-pad", accept=accept)
        assert document["dist-tags"] == {"latest": "1.0.0"}
        assert deprecated(document) == {
            "1.0.0": None,
            "1.1.0": "denied by rule r1",
            "1.2.0": "denied by rule r1",
        }
    assert (await proxied.document("left-pad/latest"))["version"] == "1.0.0"
    assert (await proxied.document("left-pad/1.2.0"))["deprecated"] == "denied by rule r1"

    refused = await proxied.get("npm/left-pad/-/left-pad-1.2.0.tgz")
    served = await proxied.get("npm/left-pad/-/left-pad-1.0.0.tgz")
    assert (refused.status_code, served.status_code) == (302, 200)
    assert refused.headers["location"].endswith("/left-pad/1.2.0/denied+by+rule+r1")
    folder = "http://localhost:8080/proxy/acme/npm/left-pad/-/"
    assert [version["dist"]["tarball"] for version in document["versions"].values()] == [
        f"{folder}left-pad-1.0.0.tgz",
        f"{folder}blocked/denied-by-rule-r1/left-pad-1.1.0.tgz",
        f"{folder}blocked/denied-by-rule-r1/left-pad-1.2.0.tgz",
    ]
    assert await proxied.events() == ["blocklist_hit", "install_allowed"]


async def test_where_all_is_blocked_tags_stay_and_each_tarball_is_refused(proxied: Proxied):
    """A missing tag would be an error without a reason, which the deprecation has."""
    proxied.publishes_npm("left-pad", "1.0.0", "1.1.0")
    await proxied.policy(deny=[deny("npm", "left-pad", id="r1", reason="it is bad")])
    document = await proxied.document("left-pad")
    tarballs = [version["dist"]["tarball"] for version in document["versions"].values()]
    paths = [tarball.partition("/proxy/acme/")[2] for tarball in tarballs]

    assert document["dist-tags"] == {"latest": "1.1.0"}
    assert [version["deprecated"] for version in document["versions"].values()] == [
        "denied by rule r1: it is bad"
    ] * 2
    assert [(await proxied.get(path)).status_code for path in paths] == [302, 302]
    assert await proxied.events() == ["blocklist_hit"] * 2


@pytest.mark.parametrize("path", ["left-pad", "@scope/left-pad", "@scope%2fleft-pad"])
async def test_tags_are_listed_as_the_document_has_them(proxied: Proxied, path: str):
    name = path.replace("%2f", "/")
    tags = {"latest": "1.1.0", "next": "1.0.0"}
    proxied.publishes_npm(name, "1.0.0", "1.1.0", **{"dist-tags": tags})
    await proxied.policy(deny=[deny("npm", name, "1.1.0", id="r1")])
    listed = await proxied.get(f"npm/-/package/{path}/dist-tags")
    missing = await proxied.get("npm/-/package/other/dist-tags")
    put = await proxied.send("PUT", f"npm/-/package/{path}/dist-tags/latest")

    assert await listed.get_json() == {"latest": "1.0.0", "next": "1.0.0"}
    assert await listed.get_json() == (await proxied.document(path))["dist-tags"]
    assert (missing.status_code, put.status_code) == (404, 405)
    assert await proxied.events() == []


async def test_what_an_address_says_of_a_tarball_decides_nothing(proxied: Proxied):
    """Pnpm prints the address of a blocked tarball alone; lockfiles may keep it for longer."""
    proxied.publishes_npm("left-pad", "1.0.0", "1.1.0")
    await proxied.policy(deny=[deny("npm", "left-pad", "1.1.0", id="r1")])
    folder = "npm/left-pad/-/blocked/denied-by-rule-r1"
    denied = await proxied.get(f"{folder}/left-pad-1.1.0.tgz")
    allowed = await proxied.get(f"{folder}/left-pad-1.0.0.tgz")
    for path in (
        "blocked/left-pad-1.0.0.tgz",
        "blocked/../left-pad-1.0.0.tgz",
        "x/left-pad-1.0.0.tgz",
    ):
        assert (await proxied.get(f"npm/left-pad/-/{path}")).status_code == 404, path

    assert (denied.status_code, allowed.status_code) == (302, 200)
    assert await proxied.events() == ["blocklist_hit", "install_allowed"]


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("1.0.0-beta.1", ">=1.0.0-alpha <1.0.0"),
        ("1.0.0-beta.1", "<1.0.0"),
        ("2.0.0+build.5", "2.0.0"),
    ],
)
async def test_no_spelling_of_a_version_passes_a_rule(proxied: Proxied, version: str, rule: str):
    proxied.publishes_npm("left-pad", version)
    await proxied.policy(deny=[deny("npm", "left-pad", rule, id="r1")])
    answer = await proxied.get(f"npm/left-pad/-/left-pad-{version.replace('+', '%2B')}.tgz")

    assert answer.status_code == 302
    blocked = await proxied.client.get(
        answer.headers["location"].removeprefix("http://localhost:8080")
    )
    assert blocked.status_code == 403
    assert version in (await blocked.get_json())["error"]


async def test_a_document_is_confirmed_and_compressed(proxied: Proxied):
    proxied.publishes_npm("left-pad", *(f"1.{minor}.0" for minor in range(20)), readme="text")
    etags = set()
    for accept in (ABBREVIATED, "application/json", "*/*"):
        answer = await proxied.get("npm/left-pad", accept=accept, accept_encoding="gzip")
        document = json.loads(gzip.decompress(await answer.get_data()))
        etag = answer.headers["etag"]
        known = await proxied.get("npm/left-pad", accept=accept, if_none_match=etag)
        assert known.status_code == 304
        assert ("readme" in document) == (accept != ABBREVIATED)
        etags.add(etag)
    assert len(etags) == 2
    assert proxied.registry.times("/npm/left-pad") == 1


async def test_only_what_the_document_lists_is_there(proxied: Proxied):
    proxied.publishes_npm("left-pad", "1.0.0")
    for path in (
        "left-pad/-/left-pad-9.9.9.tgz",
        "left-pad/-/right-pad-1.0.0.tgz",
        "left-pad/-/../left-pad-1.0.0.tgz",
        "left-pad/-/%2e%2e%2fleft-pad-1.0.0.tgz",
        "left-pad/-/",
        "left-pad/-",
        "left-pad/-/left-pad-1.0.0.tgz/x",
        "left-pad/1.0.0/x",
        "left-pad/9.9.9",
        "left-pad//",
        "-/v1/search",
        "-/package/left-pad/collaborators",
        "-/all",
    ):
        assert (await shown(await proxied.get(f"npm/{path}")))[0] == 404, path
    assert await proxied.rows() == []


async def test_small_questions_are_answered(proxied: Proxied):
    proxied.registry.says("/npm/-/npm/v1/keys", b'{"keys":[]}', content_type="application/json")

    assert await (await proxied.get("npm/-/ping?write=true")).get_json() == {}
    whoami = await proxied.get("npm/-/whoami")
    assert await whoami.get_json() == {"username": proxied.key.id}
    assert await (await proxied.get("npm/-/npm/v1/keys")).get_json() == {"keys": []}


async def test_many_versions_are_judged_in_a_thread(proxied: Proxied):
    """Otherwise a page of a thousand versions would stop the event loop."""
    proxied.publishes_npm("few", "1.0.0")
    proxied.publishes_npm("many", *(f"1.0.{number}" for number in range(200)))

    async def thread(name: str) -> threading.Thread:
        located = await proxied.world.services.proxy.locate(NPM, proxied.world.acme, name)
        return await located.judge(lambda _: threading.current_thread())

    assert await thread("few") is threading.main_thread()
    assert await thread("many") is not threading.main_thread()


async def test_an_audit_query_is_passed_on_without_first_party_names(proxied: Proxied):
    """A public registry learns no name that a stranger could take there."""
    path = "/npm/-/npm/v1/security/advisories/bulk"
    proxied.registry.says(path, b'{"left-pad":[]}', content_type="application/json")
    await proxied.policy(first_party=[FIRST_PARTY])
    query = json.dumps({"left-pad": ["1.0.0"], "@acme/secret": ["1.0.0"]}).encode()
    long = query + b" " * AT_ONCE_BYTES
    for body, coding in (
        (query, ""),
        (gzip.compress(query), "gzip"),
        (gzip.compress(long), "gzip"),
    ):
        answer = await _audit(proxied, "advisories/bulk", body, coding)
        assert await answer.get_json() == {"left-pad": []}

    sent = [json.loads(asked.body) for asked in proxied.registry.asked]
    assert sent == [{"left-pad": ["1.0.0"]}] * 3
    assert all("authorization" not in asked.headers for asked in proxied.registry.asked)


async def test_a_tree_of_packages_is_passed_on_without_first_party_names(proxied: Proxied):
    """As older clients ask, with packages in packages."""
    proxied.registry.says("/npm/-/npm/v1/security/audits/quick", b"{}")
    await proxied.policy(first_party=[FIRST_PARTY])
    inner = {"version": "1.0.0", "requires": {"@acme/a": "1", "b": "1"}}
    hidden = {"@acme/secret": {"version": "1.0.0", "dependencies": {"b": inner}}}
    query = {
        "name": "@acme/app",
        "version": "1.0.0",
        "requires": {"left-pad": "^1", "@acme/secret": "1"},
        "install": ["left-pad@^1", "@types/node", "@acme/secret@1.0.0", "@acme/a", {"@acme/b": 1}],
        "remove": "@acme/c",
        "dependencies": {"left-pad": {"dependencies": {"b": inner, **hidden}}, **hidden},
    }
    answer = await _audit(proxied, "audits/quick", json.dumps(query).encode())

    assert answer.status_code == 200
    (asked,) = proxied.registry.asked
    assert b"@acme" not in asked.body
    passed_on = json.loads(asked.body)
    assert passed_on["dependencies"] == {
        "left-pad": {"dependencies": {"b": {"version": "1.0.0", "requires": {"b": "1"}}}}
    }
    assert passed_on["install"] == ["left-pad@^1", "@types/node"]
    assert passed_on["remove"] == []


async def test_an_audit_query_that_cannot_be_read_goes_nowhere(proxied: Proxied):
    """It could hold any name."""
    for body, coding, status in (
        (b"{", "identity", 400),
        (b"[]", "identity", 400),
        (b"{}", "br", 400),
        (b"\x1f\x8b\x08", "gzip", 400),
        (gzip.compress(b"0" * 2**27), "gzip", 400),
        (b'{"dependencies":{"a":' * 3000 + b"{}" + b"}}" * 3000, "identity", 400),
        (b" " * (QUERY_BYTES_MAX + 1), "identity", 413),
    ):
        answer = await _audit(proxied, "audits", body, coding)
        assert (await shown(answer))[0] == status, body[:20]
    assert proxied.registry.asked == []


async def test_nothing_else_is_passed_on(proxied: Proxied):
    assert (await _audit(proxied, "../../user", b"{}")).status_code == 404
    assert (await _audit(proxied, "whatever", b"{}")).status_code == 404
    assert proxied.registry.asked == []


async def _audit(proxied: Proxied, query: str, body: bytes, coding: str = "identity") -> Any:
    headers = [bearer(proxied.key.secret), ("content-encoding", coding)]
    return await proxied.client.post(
        f"/proxy/acme/npm/-/npm/v1/security/{query}",
        headers=[*headers, ("content-type", "application/json")],
        data=body,
    )
