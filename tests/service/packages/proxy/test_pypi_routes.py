"""PyPI's simple repository API over HTTP: what is listed, served, marked and refused."""

import io
import json
import zipfile
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from service.core.settings import Settings
from tests.conftest import START, SettableClock
from tests.replaced import replaced
from tests.service.packages.install_tokens.jobs import INSTALL, new_key
from tests.service.packages.proxy.proxied import (
    BIG,
    Proxied,
    deny,
    running_proxy,
    second_process,
    shown,
    wheel_of,
)
from tests.service.packages.proxy.registry import FakeRegistry

HTML = "application/vnd.pypi.simple.v1+html"


async def marks(proxied: Proxied, name: str = "foo") -> dict[str, Any]:
    """What each file of a project is yanked for."""
    return {file["filename"]: file["yanked"] for file in (await proxied.page(name))["files"]}


@pytest.mark.parametrize("name", ["foo-bar", "Foo.Bar", "foo--bar", "FOO_.-bar"])
async def test_every_spelling_of_a_name_is_one_project(proxied: Proxied, name: str):
    """The registry is asked by the canonical one, and so is the policy (PEP 503)."""
    proxied.publishes("foo-bar", wheel_of("foo-bar", "1.0"), wheel_of("foo-bar", "2.0"))
    await proxied.policy(deny=[deny("pypi", "foo.BAR", "==1", id="r1")])

    assert await marks(proxied, name) == {
        "foo_bar-1.0-py3-none-any.whl": "denied by rule r1",
        "foo_bar-2.0-py3-none-any.whl": False,
    }
    assert [asked.path for asked in proxied.registry.asked] == ["/simple/foo-bar/"]


async def test_what_can_be_no_name_never_reaches_the_registry(proxied: Proxied):
    for name in (
        "..",
        "%2e%2e",
        "foo%2fbar",
        "foo%2f..%2fbar",
        "-foo",
        "foo-",
        "f%00oo",
        "foo%20",
        "f" * 300,
        "fo%C3%B6",
        "%D1%84oo",
        "foo%0a",
        "foo;bar",
        "foo%3fbar",
        "foo%23",
        "%ff",
    ):
        assert (await shown(await proxied.get(f"pypi/simple/{name}/")))[0] == 404, name
    assert proxied.registry.asked == []


async def test_an_unknown_name_is_a_404(proxied: Proxied):
    answer = await proxied.get("pypi/simple/foo/", accept=f"{HTML}, text/html;q=0.1")

    assert await shown(answer) == (404, "the package registry has no such package or file")


async def test_a_page_is_there_with_and_without_its_slash(proxied: Proxied):
    """In each form that clients ask for; a redirect would lose credentials."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    for path in ("pypi/simple/foo", "pypi/simple/foo/"):
        html = await proxied.get(path, accept="text/html")
        assert html.headers["content-type"] == "text/html; charset=utf-8"
        assert "foo-1.0-py3-none-any.whl#sha256=" in await html.get_data(as_text=True)

    refused = await proxied.get("pypi/simple/foo/", accept="application/xml")
    assert (await shown(refused))[0] == 406


async def test_a_blocked_file_is_marked_and_refused_and_others_are_not(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0"), wheel_of("foo", "1.0.1"))
    await proxied.policy(deny=[deny("pypi", "foo", "==1.0.0", id="r1", reason="it is bad")])

    assert await marks(proxied) == {
        "foo-1.0-py3-none-any.whl": "denied by rule r1: it is bad",
        "foo-1.0.1-py3-none-any.whl": False,
    }
    refused = await proxied.get(await proxied.path_of("foo", "foo-1.0-py3-none-any.whl"))
    served = await proxied.get(await proxied.path_of("foo", "foo-1.0.1-py3-none-any.whl"))
    assert (refused.status_code, served.status_code) == (302, 200)


async def test_where_all_is_blocked_nothing_is_marked(proxied: Proxied):
    """Clients request no file of a page on which all are yanked: no reason and no row."""
    proxied.publishes("foo", wheel_of("foo", "1.0"), wheel_of("foo", "1.1"))
    await proxied.policy(deny=[deny("pypi", "foo", id="r1", reason="it is bad")])

    assert set((await marks(proxied)).values()) == {False}
    html = await proxied.get("pypi/simple/foo/", accept="text/html")
    assert "data-yanked" not in await html.get_data(as_text=True)
    for filename in await marks(proxied):
        assert (await proxied.get(await proxied.path_of("foo", filename))).status_code == 302
    assert await proxied.events() == ["blocklist_hit"] * 2


async def test_what_the_registry_has_yanked_is_no_release_that_is_left(proxied: Proxied):
    """Nor is it unmarked: only a range passes it over."""
    proxied.publishes("foo", wheel_of("foo", "1.0", yanked="broken"), wheel_of("foo", "1.1"))
    await proxied.policy(deny=[deny("pypi", "foo", "==1.1", id="r1")])

    assert await marks(proxied) == {
        "foo-1.0-py3-none-any.whl": "broken",
        "foo-1.1-py3-none-any.whl": False,
    }


async def test_marks_return_once_a_release_is_allowed(proxied: Proxied):
    young, younger = proxied.clock() - timedelta(days=6), proxied.clock() - timedelta(days=2)
    proxied.publishes("foo", wheel_of("foo", "1.0", at=young), wheel_of("foo", "1.1", at=younger))
    await proxied.policy(cooldown={"min_age_days": 7})
    before = await marks(proxied)
    proxied.clock.advance(days=1)
    after = await marks(proxied)

    assert set(before.values()) == {False}
    assert after["foo-1.0-py3-none-any.whl"] is False
    assert str(after["foo-1.1-py3-none-any.whl"]).startswith("too new")


async def test_a_rule_saved_while_a_large_document_is_read_holds(proxied: Proxied):
    """A thread decodes it for as long as 100 ms: the policy is asked again."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    path = await proxied.path_of("foo")
    documents = proxied.world.services.proxy.registries[Ecosystem.PYPI].public.documents
    run_in_thread = documents._files.run_in_thread

    async def slowly(work: Any) -> Any:
        await proxied.policy(deny=[deny("pypi", "foo", id="r1")])
        return await run_in_thread(work)

    with replaced((documents, "_heavy_bytes", 0), (documents._files, "run_in_thread", slowly)):
        assert (await proxied.get(path)).status_code == 302


async def test_a_late_wheel_of_an_old_release_is_too_new_by_itself(proxied: Proxied):
    """Files are published one by one: the cooldown is about each."""
    late = wheel_of("foo", "1.0", at=START - timedelta(days=2))
    early = wheel_of("foo", "0.9")
    unknown = wheel_of("foo", "0.8", at=None)
    proxied.publishes("foo", early, late, unknown)
    await proxied.policy(cooldown={"min_age_days": 7})

    found = await marks(proxied)
    assert found[early.filename] is False
    assert str(found[late.filename]).startswith("too new: published 2026-03-02")
    assert str(found[unknown.filename]).startswith("too new: its publication is not known")
    refused = await proxied.get(await proxied.path_of("foo", late.filename))
    assert "/foo/1.0/too+new:+published+2026-03-02" in refused.headers["location"]
    assert await proxied.events() == ["cooldown_active"]


async def test_a_file_is_sent_as_it_is(proxied: Proxied):
    """No coding of ours, no page for browsers, and never kept without being asked again."""
    proxied.publishes("foo", wheel_of("foo", "1.0", BIG))
    timeouts = []

    @proxied.world.app.after_request
    async def note(response: Any) -> Any:
        timeouts.append(response.timeout)
        return response

    answer = await proxied.get(
        await proxied.path_of("foo"), accept="text/html", accept_encoding="gzip, zstd, br"
    )

    assert await answer.get_data() == BIG
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(BIG))
    assert answer.headers["cache-control"] == "private, no-cache"
    assert "content-encoding" not in answer.headers
    assert timeouts == [None, None]  # Quart's minute would cut slow clients, of pages, too


async def test_a_path_is_asked_for_as_the_registry_wrote_it(proxied: Proxied):
    """Escapes included; clients write them in their own way."""
    name = "foo-1.0%2Bcu118-py3-none-any.whl"
    file = wheel_of("foo", "1.0+cu118", url=f"{proxied.registry.url}/files/a%20b/{name}")
    proxied.publishes("foo", file)
    proxied.registry.says(f"/files/a%20b/{name}", file.content)
    path = await proxied.path_of("foo")
    assert path.endswith(f"/files/a%20b/{name}")
    for written in (path, path.replace("%2B", "+"), path.replace("%2B", "%2b")):
        assert (await proxied.get(written)).status_code == 200

    assert proxied.registry.times(f"/files/a%20b/{name}") == 1
    (row,) = await proxied.rows()
    assert row["version"] == "1.0+cu118"


async def test_only_listed_files_are_served(proxied: Proxied):
    """By the path that the page gives them, on the origin that it gives."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    path = await proxied.path_of("foo")
    for changed in (
        path.replace("foo-1.0", "foo-9.0"),
        path.replace("foo-1.0", "bar-1.0"),
        path.replace("/files/127", "/files/128"),
        path.replace("/files/foo", "/files/../files/foo"),
        path.replace("/files/foo", "/files/%2e%2e/files/foo"),
        path.replace("/files/foo", "//files/foo"),
        path.replace("/files/foo", "/files/./foo"),
        path.replace("/foo", "/Foo"),
        path.replace("/foo", "%252ffoo"),
        path + "%00",
        path + ".metadata.metadata",
        path.replace(".whl", ".exe"),
    ):
        assert (await shown(await proxied.get(changed)))[0] == 404, changed
    assert [asked for asked in proxied.registry.asked if asked.path.startswith("/files")] == []
    assert await proxied.rows() == []


async def test_a_file_of_another_project_is_not_served_under_this_ones_rules(proxied: Proxied):
    """Its own project's page must list it."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    stranger = wheel_of("foo", "1.0").entry(proxied.registry)
    page = {"meta": {"api-version": "1.1"}, "name": "bar", "files": [stranger]}
    proxied.registry.says(
        "/simple/bar/",
        json.dumps(page).encode(),
        content_type="application/vnd.pypi.simple.v1+json",
    )
    await proxied.policy(deny=[deny("pypi", "foo", id="r1")])

    assert (await proxied.page("bar"))["files"] == []
    assert (await proxied.get(await proxied.path_of("foo"))).status_code == 302


async def test_a_file_without_a_digest_is_not_served(proxied: Proxied):
    """Nothing would tell it from another one."""
    proxied.publishes("foo", wheel_of("foo", "1.0", hashes={"md5": "0" * 32}))
    path = await proxied.path_of("foo")

    assert (await proxied.get(path)).status_code == 404
    assert await proxied.rows() == []


async def test_files_of_origins_that_are_not_configured_are_not_listed(
    proxied: Proxied, elsewhere: FakeRegistry
):
    """A page cannot direct a request of ours."""
    url = f"{elsewhere.url}/files/foo-1.0-py3-none-any.whl"
    proxied.publishes("foo", wheel_of("foo", "1.0", url=url))

    assert (await proxied.page("foo"))["files"] == []
    assert elsewhere.asked == []


async def test_a_new_origin_in_the_settings_is_seen_at_once(
    settings: Settings, registry: FakeRegistry, elsewhere: FakeRegistry, clock: SettableClock
):
    """Also for a project whose page is cached: it was read with other origins."""
    url = f"{elsewhere.url}/files/foo-1.0-py3-none-any.whl"
    file = wheel_of("foo", "1.0", url=url)
    async with running_proxy(settings, registry, clock) as proxied:
        proxied.publishes("foo", file)
        assert (await proxied.page("foo"))["files"] == []
        changed = {"proxy_pypi_file_origins": (elsewhere.url,)}
        async with second_process(proxied, **changed) as later:
            assert len((await later.page("foo"))["files"]) == 1


async def test_metadata_is_the_registrys_or_comes_from_the_wheel(proxied: Proxied):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(
            "foo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: foo\nVersion: 1.0\n"
        )
    proxied.publishes("foo", wheel_of("foo", "1.0", packed.getvalue()))
    path = await proxied.path_of("foo")
    extracted = await proxied.get(f"{path}.metadata")

    assert extracted.status_code == 200
    assert (await extracted.get_data()).startswith(b"Metadata-Version: 2.1")
    assert await proxied.rows() == []

    file = wheel_of("bar", "1.0")
    digest = "ea2d9e4ea1bbbdb0d6bc06ce0acc1a1e6a0fbd5d52ae9a1d3f0e3ba7f17e9a5e"
    proxied.publishes("bar", wheel_of("bar", "1.0", **{"core-metadata": {"sha256": digest}}))
    proxied.registry.says(f"/files/{file.filename}.metadata", b"not what the page says")
    lying = await proxied.get(f"{await proxied.path_of('bar')}.metadata")
    assert lying.status_code == 502


async def test_in_an_outage_the_last_page_is_served_and_the_policy_asked(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0"), wheel_of("foo", "2.0"))
    path = await proxied.path_of("foo")
    proxied.registry.says("/simple/foo/", status=503)
    proxied.clock.advance(hours=23)
    await proxied.policy(deny=[deny("pypi", "foo", "==1.0", id="r1")])

    assert await marks(proxied) == {
        "foo-1.0-py3-none-any.whl": "denied by rule r1",
        "foo-2.0-py3-none-any.whl": False,
    }
    assert (await proxied.get(path)).status_code == 302
    proxied.clock.advance(hours=2)
    for each in ("pypi/simple/foo/", path, "pypi/simple/never-seen/"):
        proxied.registry.says("/simple/never-seen/", status=500)
        status, text = await shown(await proxied.get(each))
        assert (status, "try again later" in text) == (502, True)


async def test_a_page_that_is_none_is_a_502(proxied: Proxied):
    bodies = (b"", b"{", b'{"name":"another","files":[]}', b"\x1f\x8b\x00")
    for number, body in enumerate(bodies):
        path, content_type = f"/simple/foo{number}/", "application/vnd.pypi.simple.v1+json"
        proxied.registry.says(path, body, content_type=content_type)
        assert (await shown(await proxied.get(f"pypi/simple/foo{number}/")))[0] == 502, body


async def test_a_file_of_a_public_registry_is_fetched_once_for_all_organisations(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    path = await proxied.path_of("foo")
    of_other = replace(proxied, key=await new_key(proxied.world, INSTALL, slug="other"))

    mine = await proxied.get(path)
    other = await of_other.send("GET", path, slug="other")

    assert await mine.get_data() == await other.get_data() == b"foo 1.0"
    assert proxied.registry.times(f"/files/{path.rpartition('/')[2]}") == 1
    assert len(await proxied.rows()) == 1
    assert len(await proxied.world.audit("other", decision="ALLOWED")) == 1
