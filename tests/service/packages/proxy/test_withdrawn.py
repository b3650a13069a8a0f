"""A registry that lists a release no more: it is refused, unless a rule lets it through."""

import asyncio
import signal
from functools import partial
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from analytics.model.instants import format_ms
from service.packages.proxy.artifacts import SETTLED
from service.packages.proxy.document_cache import EMPTIED_AFTER, MISSING_FOR
from tests.crashes import order_for
from tests.interpreters import run_module
from tests.package_documents import SIMPLE, simple_page
from tests.service.packages.proxy.proxied import Proxied, deny, second_process, shown, wheel_of
from tests.service.packages.proxy.registry import Asked, head

NPM_PATH = "npm/left-pad/-/left-pad-1.0.0.tgz"
OTHER = wheel_of("foo", "2.0")
BLOCKED = "release_withdrawn"


async def served(proxied: Proxied, *more: Any) -> str:
    """Serve foo 1.0, and let its document become old; the path of its file."""
    proxied.publishes("foo", wheel_of("foo", "1.0"), *more)
    path = await proxied.path_of("foo", "foo-1.0-py3-none-any.whl")
    assert (await proxied.get(path)).status_code == 200
    proxied.clock.advance(minutes=10)
    return path


async def withdrawn(proxied: Proxied) -> str:
    """The path of foo 1.0, which two documents do not list; 2.0 is listed."""
    path = await served(proxied, OTHER)
    proxied.publishes("foo", OTHER)
    await proxied.page("foo")
    proxied.clock.now += SETTLED
    await proxied.page("foo")
    return path


async def test_a_file_that_is_listed_no_more_is_refused_and_says_why(proxied: Proxied):
    path = await withdrawn(proxied)

    answers = [await proxied.send(method, path) for method in ("GET", "HEAD", "GET")]

    assert [answer.status_code for answer in answers] == [302] * 3
    (_, row) = await proxied.rows()
    assert (row["event"], row["decision"], row["version"]) == (BLOCKED, "BLOCKED", "1.0")
    assert row["payload"] == {"withdrawn_at": format_ms(proxied.clock.now - SETTLED)}
    location = answers[0].headers["location"]
    assert f"/blocked/{row['id']}/foo/1.0/withdrawn:" in location
    status, said = await shown(await proxied.client.get(location.partition("8080")[2]))
    assert (status, "withdrawn: its registry has not listed it since" in said) == (403, True)


async def test_the_page_of_the_refusal_says_what_it_means(proxied: Proxied):
    path = await withdrawn(proxied)
    location = (await proxied.get(path)).headers["location"]
    headers = {"accept": "text/html", **proxied.world.session("owner")}

    page = await proxied.client.get(location.partition("8080")[2], headers=headers)

    html = await page.get_data(as_text=True)
    assert "Its registry took it back" in html
    assert "Not listed since" in html
    assert "something else" not in html


async def test_npm_names_a_version_that_was_unpublished(proxied: Proxied):
    proxied.publishes_npm("left-pad", "1.0.0", "1.1.0")
    assert (await proxied.get(NPM_PATH)).status_code == 200
    proxied.clock.advance(minutes=10)
    proxied.publishes_npm("left-pad", "1.1.0")
    assert (await proxied.get(NPM_PATH)).status_code == 404
    proxied.clock.now += SETTLED

    assert (await proxied.get(NPM_PATH)).status_code == 302
    assert await proxied.events() == ["install_allowed", BLOCKED]


async def test_a_package_that_npm_says_is_unpublished_is_withdrawn(proxied: Proxied):
    proxied.publishes_npm("left-pad", "1.0.0")
    await proxied.get(NPM_PATH)
    proxied.clock.advance(minutes=10)
    body = b'{"name":"left-pad","time":{"unpublished":{"name":"ada"}}}'
    proxied.registry.says("/npm/left-pad", body, content_type="application/json")
    await proxied.get(NPM_PATH)
    proxied.clock.now += SETTLED

    assert (await proxied.get(NPM_PATH)).status_code == 302


async def test_a_yanked_release_is_served_on(proxied: Proxied):
    path = await served(proxied)
    proxied.publishes("foo", wheel_of("foo", "1.0", yanked="broken"), OTHER)
    await proxied.page("foo")
    proxied.clock.now += SETTLED

    assert (await proxied.get(path)).status_code == 200
    assert BLOCKED not in await proxied.events()


async def test_what_is_listed_again_is_served_again(proxied: Proxied):
    path = await withdrawn(proxied)
    proxied.publishes("foo", wheel_of("foo", "1.0"), OTHER)
    proxied.clock.advance(minutes=10)

    await proxied.page("foo")

    assert (await proxied.get(path)).status_code == 200


async def test_a_document_that_is_confirmed_ends_what_others_saw_in_an_older_one(proxied: Proxied):
    """A network that delivers documents may have given another process an older one, once."""
    path = await served(proxied)
    page = simple_page("foo", [wheel_of("foo", "1.0").entry(proxied.registry)])
    proxied.registry.says("/simple/foo/", page, content_type=SIMPLE, etag='"1"')
    await proxied.page("foo")
    compare = partial(
        proxied.world.services.proxy.artifacts.compare,
        Ecosystem.PYPI,
        f"{proxied.registry.url}/simple/",
        "foo",
    )
    proxied.registry.says("/simple/foo/", status=304)
    for _ in range(2):
        await compare(None, since=None)
        proxied.clock.now += SETTLED
        assert (await proxied.get(path)).status_code == 200
    await compare(None, since=None)
    proxied.clock.now += SETTLED
    await compare(None, since=None)
    await proxied.page("foo")

    assert (await proxied.get(path)).status_code == 200


async def test_an_older_document_that_another_node_has_confirmed_hides_it_for_once(
    proxied: Proxied,
):
    """Documents of another machine are not ours: nothing but the database tells of them."""
    path = await served(proxied, OTHER)
    page = simple_page("foo", [OTHER.entry(proxied.registry)])
    proxied.registry.says("/simple/foo/", page, content_type=SIMPLE, etag='"2"')
    await proxied.page("foo")
    proxied.registry.says("/simple/foo/", status=304)
    proxied.clock.advance(minutes=5)
    artifacts, url = proxied.world.services.proxy.artifacts, f"{proxied.registry.url}/simple/"

    async def older() -> frozenset[str]:
        return frozenset({"foo-1.0-py3-none-any.whl", OTHER.filename})

    await artifacts.compare(Ecosystem.PYPI, url, "foo", older, since=proxied.clock.now)
    for status in (404, 302):
        proxied.clock.now += SETTLED
        assert (await proxied.get(path)).status_code == status


@pytest.mark.parametrize("confirms", [True, False])
async def test_a_file_that_is_stored_after_its_document_was_compared_is_noted(
    proxied: Proxied, confirms: bool
):
    """It was on its way when the registry withdrew it: no document that comes later is another."""
    proxied.publishes("foo", wheel_of("foo", "1.0"), OTHER)
    path = await proxied.path_of("foo", "foo-1.0-py3-none-any.whl")
    content = b"foo 1.0"

    async def withdraws(_: Asked, writer: asyncio.StreamWriter) -> None:
        page = simple_page("foo", [OTHER.entry(proxied.registry)])
        proxied.registry.says("/simple/foo/", page, content_type=SIMPLE, etag='"2"')
        proxied.clock.advance(minutes=10)
        await proxied.page("foo")
        writer.write(head(content_length=str(len(content))) + content)

    proxied.registry.does("/files/foo-1.0-py3-none-any.whl", withdraws)
    assert (await proxied.get(path)).status_code == 200
    if confirms:
        proxied.registry.says("/simple/foo/", status=304)
    for _ in range(2):
        proxied.clock.now += SETTLED
        await proxied.page("foo")

    assert (await proxied.get(path)).status_code == 302
    assert await proxied.events() == ["install_allowed", BLOCKED]


async def test_a_process_with_an_older_document_refuses_it_too(proxied: Proxied):
    path = await served(proxied, OTHER)
    async with second_process(proxied, proxy_index_max_age_s=86_400) as other:
        await other.page("foo")
        proxied.publishes("foo", OTHER)
        await proxied.page("foo")
        proxied.clock.now += SETTLED
        assert (await other.get(path)).status_code == 200
        await proxied.page("foo")

        assert (await other.get(path)).status_code == 302


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ({}, 302),
        ({"allow": [deny("pypi", "foo")]}, 302),
        ({"allow": [deny("pypi", "foo", withdrawn=True)]}, 200),
        ({"allow": [deny("pypi", "foo"), deny("pypi", "foo", "==1.0", withdrawn=True)]}, 200),
        ({"allow": [deny("pypi", "foo", ">1", withdrawn=True)]}, 302),
        ({"mode": "audit"}, 200),
    ],
)
async def test_only_a_rule_for_what_is_withdrawn_lets_it_through(
    proxied: Proxied, policy: Any, status: int
):
    """An exception from the cooldown was made before anything was known."""
    path = await withdrawn(proxied)
    await proxied.policy(**policy)

    answer = await proxied.get(path)

    assert answer.status_code == status
    row = (await proxied.rows())[-1]
    if policy.get("mode") == "audit":
        assert row["event"] == "install_would_block"
        assert row["payload"]["blocked_by"] == BLOCKED
    else:
        assert row["event"] == ("install_allowed" if status == 200 else BLOCKED)


async def test_an_allowed_one_comes_from_the_cache_alone(proxied: Proxied):
    path = await withdrawn(proxied)
    await proxied.policy(allow=[deny("pypi", "foo", withdrawn=True)])
    await proxied.forget_files()

    assert (await proxied.get(path)).status_code == 404
    assert proxied.registry.times("/files/foo-1.0-py3-none-any.whl") == 1


async def test_a_check_says_what_the_proxy_does(proxied: Proxied):
    await withdrawn(proxied)
    url = "/api/v1/admin/orgs/acme/policy/check"

    async def check(version: str) -> tuple[str, str]:
        asked = {"ecosystem": "pypi", "package": "foo", "version": version}
        answer = await proxied.client.post(url, json=asked, headers=proxied.world.admin)
        said = await answer.get_json()
        return said["decision"], said["event"]

    assert await check("1.0") == ("BLOCKED", BLOCKED)
    assert await check("2.0") == ("ALLOWED", "install_allowed")
    await proxied.policy(allow=[deny("pypi", "foo", withdrawn=True)])
    assert await check("1.0") == ("ALLOWED", "install_allowed")


async def test_a_deny_rule_goes_before(proxied: Proxied):
    path = await withdrawn(proxied)
    await proxied.policy(
        deny=[deny("pypi", "foo", id="r1")], allow=[deny("pypi", "foo", withdrawn=True)]
    )

    assert (await proxied.get(path)).status_code == 302
    assert (await proxied.events())[-1] == "blocklist_hit"


@pytest.mark.parametrize(
    "says",
    [
        {"status": 503},
        {"status": 404},
        {"status": 410},
        {"body": b"", "content_type": "application/vnd.pypi.simple.v1+json"},
        {"body": b"<html>Sign in</html>", "content_type": "text/html"},
        {
            "body": b'{"meta":{"api-version":"1.0"},"name":"foo","files":[]}',
            "content_type": "application/vnd.pypi.simple.v1+json",
        },
    ],
)
async def test_an_outage_withdraws_nothing(proxied: Proxied, says: dict[str, Any]):
    """Whatever the registry says of all packages, for however long."""
    path = await served(proxied, OTHER)
    proxied.registry.says("/simple/foo/", **says)
    for _ in range(3):
        await proxied.get("pypi/simple/foo/")
        proxied.clock.now += EMPTIED_AFTER
    proxied.publishes("foo", wheel_of("foo", "1.0"), OTHER)
    proxied.clock.now += SETTLED

    assert (await proxied.get(path)).status_code == 200
    assert BLOCKED not in await proxied.events()


@pytest.mark.parametrize(
    "says",
    [
        {"status": 404},
        {"status": 410},
        {
            "body": b'{"meta":{"api-version":"1.0"},"name":"foo","files":[]}',
            "content_type": "application/vnd.pypi.simple.v1+json",
        },
    ],
)
async def test_a_package_that_is_gone_while_others_are_there_is_withdrawn(
    proxied: Proxied, says: dict[str, Any]
):
    """It has to be gone twice, ten minutes apart, from a registry that gave others meanwhile."""
    path = await served(proxied)
    proxied.publishes("bar", wheel_of("bar", "1.0"))
    proxied.registry.says("/simple/foo/", **says)
    await proxied.get("pypi/simple/foo/")
    proxied.clock.now += EMPTIED_AFTER / 2
    await proxied.page("bar")
    proxied.clock.now += EMPTIED_AFTER / 2
    await proxied.get("pypi/simple/foo/")
    assert BLOCKED not in await proxied.events()
    proxied.clock.now += SETTLED

    assert (await proxied.get(path)).status_code == 302
    assert (await proxied.events())[-1] == BLOCKED


async def test_a_listing_of_which_entries_were_dropped_says_nothing_of_others(proxied: Proxied):
    """Its file may be at an origin that is not configured any more."""
    path = await served(proxied)
    elsewhere = wheel_of("foo", "1.0", url="https://elsewhere.example/foo-1.0-py3-none-any.whl")
    proxied.publishes("foo", elsewhere, OTHER)
    await proxied.page("foo")
    proxied.clock.now += SETTLED

    assert (await proxied.get(path)).status_code == 404
    assert BLOCKED not in await proxied.events()


@pytest.mark.slow
@pytest.mark.parametrize("step", [("COMMIT", ""), ("rename", "UPDATE artifacts")])
async def test_it_is_noted_whenever_the_process_is_killed(proxied: Proxied, step: Any):
    """The document is kept after what it withdraws is noted: until then it is fetched again."""
    path = await served(proxied, OTHER)
    proxied.publishes("foo", OTHER)
    beginning, after = step
    settings, now = proxied.world.services.settings, proxied.clock.now
    headers = {"x-service-api-key": proxied.key.secret}
    order = order_for(settings, now, "serve-file", beginning, after=after, headers=headers)
    page = b"/proxy/acme/pypi/simple/foo/"
    killed = await asyncio.to_thread(run_module, "tests.crashes", order, input=page)
    assert killed.returncode == -signal.SIGKILL
    async with second_process(proxied) as later:
        await later.page("foo")
        proxied.clock.now += SETTLED + MISSING_FOR

        assert (await later.get(path)).status_code == 302
    assert await proxied.events() == ["install_allowed", BLOCKED]
