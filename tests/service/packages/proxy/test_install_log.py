"""An install is one row, durable before the first byte of its file."""

import asyncio
import hashlib
import json

import pytest
from sqlalchemy import text

from service.access.callers import member_actor
from service.core.settings import Settings
from service.packages.proxy.installs import client_of
from tests.budgets import sample
from tests.databases import IS_POSTGRESQL
from tests.other_programs import execute, write_lock
from tests.service.gates import Gate
from tests.service.orgs.desk import answered
from tests.service.packages.install_tokens.jobs import INSTALL, basic, bearer, exchanged, new_key
from tests.service.packages.proxy.files import LARGE
from tests.service.packages.proxy.proxied import (
    BIG,
    Proxied,
    deny,
    proxied_gate,
    running_proxy,
    second_process,
    shown,
    wheel_of,
)
from tests.service.packages.proxy.registry import FakeRegistry


@pytest.fixture
async def path(proxied: Proxied) -> str:
    proxied.publishes("foo", wheel_of("foo", "1.0", BIG))
    return await proxied.path_of("foo")


async def test_an_install_is_one_row_with_all_that_is_known(proxied: Proxied):
    proxied.publishes("foo-bar", wheel_of("foo-bar", "1.0.0"))
    response = await proxied.get(await proxied.path_of("Foo_Bar"))

    assert response.status_code == 200
    assert await response.get_data() == b"foo-bar 1.0.0"
    (row,) = await proxied.rows()
    expected = {
        "event": "install_allowed",
        "decision": "ALLOWED",
        "packageName": "foo-bar",
        "version": "1.0.0",
        "ecosystem": "pypi",
        "verdict_source": "proxy",
        "actor": proxied.key.id,
        "actor_source": "api_key",
        "request_id": response.headers["x-request-id"],
        "run_id": None,
    }
    assert {name: row[name] for name in expected} == expected


async def test_the_row_of_an_admitted_package_says_what_it_was_admitted_by(proxied: Proxied):
    """All that a statement about it may say must be in the row, which never changes."""
    proxied.publishes_npm("left-pad", "1.3.0", "1.4.0", at={"1.4.0": proxied.clock.now})
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    await proxied.policy(
        cooldown={"min_age_days": 7},
        allow=[{"id": "urgent", **deny("npm", "left-pad", "1.4.0")}],
    )
    tarball = hashlib.sha512(b"left-pad@1.3.0").hexdigest()

    for path in ("npm/left-pad/-/left-pad-1.3.0.tgz", "npm/left-pad/-/left-pad-1.4.0.tgz"):
        assert (await proxied.get(path)).status_code == 200
    assert (await proxied.get(await proxied.path_of("foo"))).status_code == 200

    old, young, wheel = [row["payload"]["admission"] for row in await proxied.rows()]
    said = {"registry": f"{proxied.registry.url}/npm/", "policy_revision": 1}
    assert old == {**said, "blocklist_generation": 0, "digest": f"sha512:{tarball}"}
    assert (young["rule_id"], young["policy_revision"]) == ("urgent", 1)
    assert "digest" not in wheel  # it is the SHA-256 of the column


async def test_a_new_revision_adds_no_row_of_the_same_install(proxied: Proxied, path: str):
    """Or each import of the blocklist would double the rows of all jobs under way."""
    assert (await proxied.get(path)).status_code == 200
    await proxied.policy(deny=[deny("pypi", "another")])
    assert (await proxied.get(path)).status_code == 200

    assert [row["payload"]["admission"]["policy_revision"] for row in await proxied.rows()] == [0]


async def test_what_a_rule_was_against_is_not_called_admitted(proxied: Proxied, path: str):
    await proxied.policy(mode="audit", deny=[deny("pypi", "foo")])
    assert (await proxied.get(path)).status_code == 200

    (row,) = await proxied.rows()
    assert (row["event"], row["decision"]) == ("install_would_block", "ALLOWED")
    assert "admission" not in row["payload"]


async def test_repeats_within_ten_minutes_are_the_same_install(proxied: Proxied, path: str):
    """Clients retry; after that it is another install."""
    for _ in range(3):
        assert (await proxied.get(path)).status_code == 200
        proxied.clock.advance(minutes=3)
    assert len(await proxied.rows()) == 1

    proxied.clock.advance(minutes=1)
    assert (await proxied.get(path)).status_code == 200
    assert len(await proxied.rows()) == 2


async def test_requests_at_once_are_one_install(proxied: Proxied, path: str):
    async with second_process(proxied) as other:
        answers = await asyncio.gather(*(each.get(path) for each in [proxied, other] * 5))

    assert {answer.status_code for answer in answers} == {200}
    assert len(await proxied.rows()) == 1


async def test_what_brings_no_file_is_no_install(proxied: Proxied, path: str):
    etag = (await proxied.send("HEAD", path)).headers["etag"]
    known = await proxied.get(path, if_none_match=etag)
    proxied.registry.says("/files/foo-1.0-py3-none-any.whl.metadata", b"", status=404)
    await proxied.get(f"{path}.metadata")

    assert (known.status_code, await known.get_data()) == (304, b"")
    assert known.headers["etag"] == etag
    assert await proxied.rows() == []


async def test_a_later_part_belongs_to_the_install_for_a_day(proxied: Proxied, path: str):
    """A slow download that breaks off is continued."""
    assert (await proxied.get(path, range="bytes=0-9")).status_code == 206
    proxied.clock.advance(hours=23)
    part = await proxied.get(path, range="bytes=10-19")
    assert (part.status_code, await part.get_data()) == (206, BIG[10:20])
    assert len(await proxied.rows()) == 1

    proxied.clock.advance(hours=1)
    assert (await proxied.get(path, range="bytes=10-19")).status_code == 206
    assert len(await proxied.rows()) == 2


async def test_no_part_is_served_without_a_row(proxied: Proxied, path: str):
    """A client that begins in the middle could have the rest from anywhere."""
    part = await proxied.get(path, range=f"bytes={len(BIG) - 10}-")

    assert (part.status_code, await part.get_data()) == (206, BIG[-10:])
    assert await proxied.events() == ["install_allowed"]


@sample(6)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"range": "bytes=0-"}, 206),
        ({"range": "bytes = 00-5"}, 206),
        ({"range": f"bytes=-{len(BIG)}"}, 206),
        ({"range": "bytes=5-2"}, 200),
        ({"range": "bytes=1-2,5-6"}, 200),
        ({"range": "items=5-6"}, 200),
        ({"range": "bytes=5-6", "if-range": '"another"'}, 200),
    ],
)
async def test_a_range_that_may_bring_all_is_no_continuation(
    proxied: Proxied, path: str, headers: dict[str, str], status: int
):
    await proxied.get(path)
    proxied.clock.advance(minutes=10)
    answer = await proxied.get(path, **headers)

    assert answer.status_code == status
    assert len(await proxied.rows()) == 2


async def test_another_credential_or_file_is_another_install(proxied: Proxied, path: str):
    proxied.publishes("foo", wheel_of("foo", "1.0", BIG), wheel_of("foo", "1.1"))
    proxied.clock.advance(minutes=2)
    another = await new_key(proxied.world, INSTALL)
    await proxied.get(path)
    await proxied.bare(path, bearer(another.secret))
    await proxied.get(await proxied.path_of("foo", "foo-1.1-py3-none-any.whl"))

    seen = [(row["actor"], row["version"]) for row in await proxied.rows()]
    assert seen == [(proxied.key.id, "1.0"), (another.id, "1.0"), (proxied.key.id, "1.1")]


async def test_the_same_bytes_under_two_names_are_two_installs(proxied: Proxied):
    """A row says which package was requested: a copy must not hide behind it."""
    for name in ("foo", "bar"):
        proxied.publishes(name, wheel_of(name, "1.0", b"same"), wheel_of(name, "1.1", b"same"))
        for file in (await proxied.page(name))["files"]:
            await proxied.get(file["url"].partition("/proxy/acme/")[2])

    seen = [(row["packageName"], row["version"]) for row in await proxied.rows()]
    assert seen == [("foo", "1.0"), ("foo", "1.1"), ("bar", "1.0"), ("bar", "1.1")]


async def test_another_decision_is_another_row(proxied: Proxied, path: str):
    rule = deny("pypi", "foo", id="r1")
    for policy in ({}, {"deny": [rule]}, {"deny": [rule], "mode": "audit"}, {}):
        await proxied.policy(**policy)
        await proxied.get(path)
        await proxied.get(path)

    assert await proxied.events() == ["install_allowed", "blocklist_hit", "install_would_block"]


async def test_in_audit_mode_what_would_be_blocked_is_served_and_recorded(
    proxied: Proxied, path: str
):
    await proxied.policy(mode="audit", deny=[deny("pypi", "foo", id="r1")])
    answer = await proxied.get(path)

    assert (answer.status_code, await answer.get_data()) == (200, BIG)
    (row,) = await proxied.rows()
    assert (row["event"], row["decision"]) == ("install_would_block", "ALLOWED")
    assert json.loads(row["decision_reason"]) == {"blocked_by": "blocklist_hit", "rule_id": "r1"}
    assert (await proxied.page("foo"))["files"][0]["yanked"] is False


async def test_a_refusal_is_recorded_once_and_named_in_the_redirect(proxied: Proxied, path: str):
    await proxied.policy(deny=[deny("pypi", "foo", id="r1")])
    answers = [await proxied.send(method, path) for method in ("GET", "HEAD", "GET")]

    (row,) = await proxied.rows()
    assert (row["event"], row["decision"]) == ("blocklist_hit", "BLOCKED")
    for answer in answers:
        assert answer.status_code == 302
        assert answer.headers["location"] == (
            f"http://localhost:8080/proxy/acme/blocked/{row['id']}/foo/1.0/denied+by+rule+r1"
        )
        assert BIG[:100] not in await answer.get_data()
    assert proxied.registry.times("/files/foo-1.0-py3-none-any.whl") == 0

    proxied.clock.advance(minutes=10)
    await proxied.get(path)
    assert len(await proxied.rows()) == 2


async def test_the_job_of_an_install_token_is_in_the_row_until_its_binding_is_revoked(
    gate: Gate, registry: FakeRegistry
):
    """The build goes on; the next install names the key alone, in a row of its own."""
    async with proxied_gate(gate, registry) as proxied:
        key = await new_key(gate.world, INSTALL)
        issued = await exchanged(gate, key)
        proxied.publishes("foo", wheel_of("foo", "1.0"))
        path = await proxied.path_of("foo")
        token = bearer(issued["token"])
        assert (await proxied.bare(path, token)).status_code == 200
        await gate.world.revoke(issued["binding"])
        assert (await proxied.bare(path, token)).status_code == 200
        assert (await proxied.bare(path, token)).status_code == 200

        seen = [
            (row["oidc_binding_id"], row["run_id"], row["actor_source"])
            for row in await proxied.rows()
        ]
        assert seen == [
            (issued["binding"], issued["runId"], "oidc_github"),
            (None, None, "api_key"),
        ]


async def test_an_expired_install_token_gets_no_byte_and_names_the_remedy(
    gate: Gate, registry: FakeRegistry
):
    async with proxied_gate(gate, registry) as proxied:
        token = bearer((await exchanged(gate, await new_key(gate.world, INSTALL)))["token"])
        proxied.publishes("foo", wheel_of("foo", "1.0"))
        path = await proxied.path_of("foo")
        gate.world.clock.advance(hours=1)
        answer = await proxied.bare(path, token)

        status, text = await shown(answer)
        assert (status, answer.headers["www-authenticate"]) == (401, 'Basic realm="countersign"')
        assert "countersign ci exec" in text
        assert await proxied.rows() == []


async def test_a_full_journal_is_a_503_without_a_byte(settings: Settings, registry: FakeRegistry):
    async with running_proxy(settings, registry, ingest_journal_rows_max=1) as proxied:
        proxied.publishes("foo", wheel_of("foo", "1.0"), wheel_of("foo", "1.1"))
        await proxied.get(await proxied.path_of("foo"))
        answer = await proxied.get(await proxied.path_of("foo", "foo-1.1-py3-none-any.whl"))

        status, text = await shown(answer)
        assert (status, answer.headers["retry-after"]) == (503, "5")
        assert "journal" in text
        again = await proxied.get(await proxied.path_of("foo", "foo-1.1-py3-none-any.whl"))
        assert again.status_code == 503
        assert registry.times("/files/foo-1.1-py3-none-any.whl") == 1


async def test_a_locked_database_is_a_503_without_a_byte(
    settings: Settings, registry: FakeRegistry
):
    wait_s = 2.0 if IS_POSTGRESQL else 0.05  # it must suffice for a new connection
    async with running_proxy(settings, registry, database_wait_s=wait_s) as proxied:
        proxied.publishes("foo", wheel_of("foo", "1.0"))
        path = await proxied.path_of("foo")
        with write_lock(settings.data_dir):
            status, text = await shown(await proxied.get(path))

        assert (status, "foo 1.0" in text) == (503, False)
        assert (await proxied.get(path)).status_code == 200
        assert len(await proxied.rows()) == 1


async def test_a_database_without_its_tables_is_a_503_without_a_byte(proxied: Proxied, path: str):
    data_dir = proxied.world.services.settings.data_dir
    execute(data_dir, "ALTER TABLE install_marks RENAME TO elsewhere")
    answer = await proxied.get(path)

    assert answer.status_code == 503
    assert BIG[:100] not in await answer.get_data()


@pytest.mark.sqlite_only(reason="PostgreSQL has no limit of its own; a full disk is error 53100")
async def test_a_full_disk_is_a_503_without_a_byte(proxied: Proxied, path: str):
    """Package managers try again after it."""
    store = proxied.world.services.store
    async with store.write() as work:
        pages = await work.session.scalar(text("PRAGMA page_count"))
        await work.session.execute(text(f"PRAGMA max_page_count = {pages}"))
    answers = []
    for number in range(40):  # there is some room in the pages
        proxied.publishes("bar", wheel_of("bar", f"1.{number}"))
        proxied.clock.advance(minutes=2)
        answers.append(await proxied.get(await proxied.path_of("bar")))

    status, said = await shown(answers[-1])
    assert (status, "storage is full" in said) == (503, True)
    served = sum(answer.status_code == 200 for answer in answers)
    assert served == len(await proxied.rows()) < len(answers)


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        ('pip/26.3 {"ci":true,"installer":{"name":"pip"}}', "pip/26.3"),
        ('uv/0.13.9 {"installer":{"name":"uv"}}', "uv/0.13.9"),
        ("npm/11.19.1 node/v20.20.2 linux x64 workspaces/false", "npm/11.19.1"),
        ("pnpm/12.21.0 npm/? node/v20.20.2 linux x64", "pnpm/12.21.0"),
        ("yarn/1.22.22 npm/? node/v20.20.2 linux x64", "yarn/1.22.22"),
        ("poetry/2.5.1 CPython/3.11.7 Linux/6.1", "poetry/2.5.1"),
        ("Bun/1.3.4", "Bun/1.3.4"),
        ("got (https://github.com/sindresorhus/got)", "got"),
        ("Mozilla/5.0 (X11)", "Mozilla/5.0"),
        (None, None),
        ("", None),
        (" pip/26.3", None),
        ("<script>/1", None),
        ("pip/26.3;drop", None),
        ("pip/", None),
        ("é/1", None),
        (f"{'a' * 60}/123", "a" * 60 + "/123"),
        (f"{'a' * 60}/1234", None),
        ("a" * 8000, None),
    ],
)
def test_a_client_is_what_its_agent_names_first(agent: str | None, client: str | None):
    """Any other text could pass for a client in the log."""
    assert client_of(agent) == client


async def test_rows_name_file_digest_and_client(proxied: Proxied, path: str):
    await proxied.get(path, user_agent="pip/26.3 {}")
    proxied.clock.advance(minutes=1)
    await proxied.policy(deny=[deny("pypi", "foo", id="r1")])
    await proxied.get(path, user_agent="uv/0.13.9 {}")

    allowed, blocked = await proxied.rows()
    assert allowed["file_name"] == blocked["file_name"] == "foo-1.0-py3-none-any.whl"
    assert allowed["file_sha256"] == blocked["file_sha256"] == hashlib.sha256(BIG).hexdigest()
    assert (allowed["client"], blocked["client"]) == ("pip/26.3", "uv/0.13.9")
    assert await proxied.world.audit(client="pip/*", file_name="foo-*") == [allowed]


@pytest.mark.parametrize("content", [b"small", LARGE])
async def test_the_digest_of_an_npm_file_is_that_of_its_bytes(proxied: Proxied, content: bytes):
    """Its document states another one: a large file is not waited for when it first comes."""
    proxied.publishes_npm("@acme/left-pad", "1.0.0", content=content)
    path = "npm/@acme/left-pad/-/left-pad-1.0.0.tgz"
    for _ in range(2):
        assert await (await proxied.get(path)).get_data() == content
        proxied.clock.advance(minutes=10)
    async with second_process(proxied) as other:  # which has not seen it arrive
        await other.get(path)

    rows, digest = await proxied.rows(), hashlib.sha256(content).hexdigest()
    assert [row["file_sha256"] for row in rows[1:]] == [digest, digest]
    assert rows[0]["file_sha256"] == (digest if content == b"small" else None)
    assert {row["file_name"] for row in rows} == {"left-pad-1.0.0.tgz"}


async def test_a_small_file_of_npm_is_waited_for(proxied: Proxied):
    """A row that names its file is worth more than a first byte some milliseconds earlier."""
    proxied.publishes_npm("left-pad", "1.0.0", content=BIG)
    await proxied.get("npm/left-pad/-/left-pad-1.0.0.tgz")

    (row,) = await proxied.rows()
    assert row["file_sha256"] == hashlib.sha256(BIG).hexdigest()


async def test_installs_with_a_machine_token_name_the_member_and_the_machine(proxied: Proxied):
    world = proxied.world
    token = await answered(world, "POST", "/machine-tokens", {"name": "laptop"})
    proxied.publishes("idna", wheel_of("idna", "3.7"))
    path = await proxied.path_of("idna")
    response = await proxied.bare(path, basic("countersign", token["token"]))

    assert response.status_code == 200
    (row,) = await proxied.rows()
    assert (row["event"], row["packageName"]) == ("install_allowed", "idna")
    assert row["actor"] == member_actor("github", world.members["owner"].id)
    assert (row["actor_source"], row["subject"]) == ("machine_token", token["id"])
    assert [one["id"] for one in await world.audit(actor_source="machine_token")] == [row["id"]]
