"""The operator's API of the blocklist: what is in force, comparing with it, and removing a feed."""

import asyncio
import errno
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.packages.policy import blocklist, sbom
from service.packages.policy.blocklist_api import SENT_SBOM_BYTES_MAX
from service.web import request_parsing
from tests.conftest import World, refused
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist_feeds import import_records, in_force
from tests.service.test_off_the_loop import threads_of

BLOCKLIST = "/api/v1/operator/blocklist"


async def shown(world: World) -> Any:
    response = await world.client.get(BLOCKLIST, headers=world.admin)
    assert response.status_code == 200
    return await response.get_json()


async def remove(world: World, feed: str) -> Any:
    return await world.client.delete(f"{BLOCKLIST}/feeds/{feed}", headers=world.admin)


async def test_without_an_import_there_is_nothing(world: World) -> None:
    assert await shown(world) == {"current": None, "feeds": [], "imports": []}


async def test_feeds_and_imports_are_shown(world: World) -> None:
    await import_records(world, osv_record("MAL-1", "one"), osv_record("MAL-2", "two"))
    await import_records(world, osv_record("GHSA-1", "three", "PyPI"), ids=["*"], feed="own")

    status = await shown(world)

    assert status["current"] == status["imports"][0]
    assert [entry["generation"] for entry in status["imports"]] == [2, 1]
    assert status["current"]["state"] == "imported"
    assert [(feed["feed"], feed["ecosystem"], feed["advisories"]) for feed in status["feeds"]] == [
        ("osv", "npm", 2),
        ("own", "pypi", 1),
    ]
    assert not any(feed["is_stale"] for feed in status["feeds"])


async def test_a_feed_is_stale_after_the_time_that_is_set(world: World) -> None:
    await import_records(world, osv_record("MAL-1", "one"))
    world.clock.advance(seconds=world.services.settings.blocklist_stale_s + 1)

    assert [feed["is_stale"] for feed in (await shown(world))["feeds"]] == [True]


async def test_a_feed_is_removed_and_every_organisation_has_the_row(world: World) -> None:
    await import_records(world, osv_record("MAL-1", "one"))
    await import_records(world, osv_record("MAL-2", "two"), feed="own")

    answer = await remove(world, "own")

    assert answer.status_code == 200
    assert await answer.get_json() == {"generation": 3, "feed": "own", "removed": {"npm": 1}}
    assert await in_force(world, "npm:one", "npm:two") == {"npm:one": "MAL-1"}
    for slug in ("acme", "other"):
        row, *_ = await world.audit(slug, event="blocklist_imported")
        assert (row["actor"], row["actor_source"]) == ("system:admin-token", "admin_token")
        assert row["actor_tenant_id"] == world.services.settings.platform_tenant_id
        assert row["verdict_source"] == "admin_api"
        assert row["payload"]["removed"] == {"npm": 1}


async def test_a_feed_that_is_not_listed_cannot_be_removed(world: World) -> None:
    status, text = await refused(await remove(world, "none"))

    assert status == 404
    assert "the blocklist has no feed none" in text


async def test_a_name_that_no_feed_can_have_is_refused(world: World) -> None:
    status, _ = await refused(await remove(world, "No Feed"))

    assert status == 400


async def check(world: World, content: str | bytes, kind: str = "application/json") -> Any:
    """The answer to a bill of materials."""
    headers = world.admin | {"content-type": kind}
    return await world.client.post(f"{BLOCKLIST}/check", headers=headers, data=content)


def bill(*purls: str) -> str:
    components = [{"type": "library", "purl": purl} for purl in purls]
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": components})


async def test_a_bill_of_materials_is_compared(world: World) -> None:
    await import_records(world, osv_record("MAL-1", "one"), osv_record("MAL-2", "two"))

    answer = await check(world, bill("pkg:npm/one@1.0.0", "pkg:npm/good@1.0.0", "pkg:gem/a@1"))

    assert answer.status_code == 200
    assert await answer.get_json() == {
        "compared": 2,
        "others": 1,
        "findings": [
            {"ecosystem": "npm", "package": "one", "version": "1.0.0", "advisories": ["MAL-1"]}
        ],
    }


@pytest.mark.parametrize(
    ("purl", "is_named"),
    [
        ("pkg:npm/%40acme/evil", True),
        ("pkg:npm/@acme/evil", True),
        ("pkg:npm/@acme/evil@", True),
        ("pkg:npm/@acme/evil?vcs_url=git@example.com", True),
        ("pkg:npm/@acme/evil@1.0.0", True),
        ("PKG://NPM//@acme/evil@1.0.0", True),
        ("pkg:npm/@acme/evil@9.9.9", False),
        ("pkg:npm/@acme/good", False),
    ],
)
async def test_a_component_is_compared_in_every_spelling(
    world: World, purl: str, is_named: bool
) -> None:
    """Without a version each advisory on the package counts: it must not look harmless."""
    await import_records(world, osv_record("MAL-2", "@acme/evil", versions=["1.0.0"], ranges=[]))

    # Some tools write a byte order mark.
    found = await (await check(world, f"\ufeff{bill(purl)}".encode())).get_json()

    assert (found["compared"], found["others"], len(found["findings"])) == (1, 0, is_named)


async def test_what_the_product_of_a_bill_of_materials_contains_is_compared(world: World) -> None:
    await import_records(world, osv_record("MAL-2", "evil", versions=["1.0.0"], ranges=[]))
    part = {"name": "part", "components": [{"purl": "pkg:npm/evil@1.0.0"}]}
    product = {"name": "shop", "purl": "pkg:npm/shop@1.0.0", "components": [part]}
    listed = json.loads(bill("pkg:npm/good@1.0.0")) | {"metadata": {"component": product}}

    found = await (await check(world, json.dumps(listed))).get_json()

    assert (found["compared"], found["others"]) == (2, 1)
    assert [entry["package"] for entry in found["findings"]] == ["evil"]


async def test_a_comparison_with_an_empty_list_is_refused(world: World) -> None:
    """It must not look like one without findings."""
    answer = await check(world, bill("pkg:npm/one@1.0.0"))

    assert await refused(answer) == (
        409,
        "the blocklist is empty: import an archive of OSV records first",
    )


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        ('{"spdxVersion": "SPDX-2.3", "packages": []}', "application/json", 400),
        ("", "application/json", 400),
        ("{", "application/json", 400),
        ("[]", "application/json", 400),
        (bill("pkg:pypi/-@1"), "application/json", 400),
        ('{"bomFormat": "CycloneDX", "components": [{"purl": 1}]}', "application/json", 400),
        (
            '{"bomFormat": "CycloneDX", "components": ' + '[{"components": ' * 9000,
            "application/json",
            400,
        ),
        (b'{"bomFormat": "CycloneDX", "components": [{"purl": "\xff"}]}', "application/json", 400),
        (bill(), "text/plain", 415),
    ],
)
async def test_what_is_no_bill_of_materials_is_refused(
    world: World, content: str | bytes, kind: str, status: int
) -> None:
    assert (await refused(await check(world, content, kind)))[0] == status


async def test_a_long_bill_of_materials_is_compared_and_a_longer_one_refused(world: World) -> None:
    """Real ones have some hundred KB, far more than other bodies may."""
    await import_records(world, osv_record("MAL-1", "one"))
    text = bill(*(f"pkg:npm/one@1.0.{number}" for number in range(5_000)))
    assert len(text) > world.services.settings.body_bytes_max

    compared = await check(world, text)
    too_long = await check(world, text + " " * SENT_SBOM_BYTES_MAX)

    assert (await compared.get_json())["compared"] == 5_000
    assert (await refused(too_long))[0] == 413


async def test_a_bill_of_materials_is_read_in_a_thread(world: World, monkeypatch) -> None:
    """One of 16 MiB takes a part of a second."""
    threads = threads_of(monkeypatch, sbom, "parse_sbom")
    await import_records(world, osv_record("MAL-1", "one"))

    answer = await check(world, bill("pkg:npm/one@1.0.0"))

    assert answer.status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def send(world: World, content: bytes, kind: str = "application/zip", **asked: str) -> Any:
    """The answer to an archive that is sent."""
    headers = {**world.admin, "content-type": kind}
    query = {"file": "osv.zip", **asked}
    path = f"{BLOCKLIST}/imports"
    return await world.client.post(path, headers=headers, query_string=query, data=content)


def archive(*names: str) -> bytes:
    records = [osv_record(f"MAL-{number}", name) for number, name in enumerate(names)]
    return bytes(osv_zip(records).getvalue())


async def test_an_archive_is_imported_as_by_its_file(world: World) -> None:
    """Planned, put in force, and then known."""
    planned = await (await send(world, archive("one", "two"), is_plan="true")).get_json()
    assert await in_force(world, "npm:one") == {}
    done = await (await send(world, archive("one", "two"))).get_json()
    again = await (await send(world, archive("one", "two"))).get_json()

    assert (planned["is_in_force"], planned["is_unchanged"]) == (False, False)
    assert planned["ecosystems"] == done["ecosystems"]
    assert (done["is_in_force"], done["advisories"]) == (True, 2)
    assert (again["is_unchanged"], again["ecosystems"]) == (True, {})
    assert await in_force(world, "npm:one") == {"npm:one": "MAL-0"}
    assert (await shown(world))["current"]["file"] == "osv.zip"


async def test_a_loss_has_to_be_accepted(world: World) -> None:
    """An archive that was cut off would let what it lacks be installed again."""
    await send(world, archive("one", "two"))
    lossy = await (await send(world, archive("one"))).get_json()
    assert await in_force(world, "npm:two") == {"npm:two": "MAL-1"}
    accepted = await (await send(world, archive("one"), accept_loss="true")).get_json()

    assert (lossy["is_in_force"], lossy["ecosystems"]["npm"]["is_loss"]) == (False, True)
    assert accepted["is_in_force"]
    assert await in_force(world, "npm:two") == {}


async def test_what_is_no_archive_is_refused_and_changes_nothing(world: World) -> None:
    await send(world, archive("one"))
    for content, kind, asked, status in (
        (b"no zip", "application/zip", {}, 400),
        (archive("two"), "application/json", {}, 415),
        (archive("two"), "application/zip", {"ids": "GHSA-*"}, 400),
        (archive("two"), "application/zip", {"feed": "not a name"}, 400),
        (archive("two"), "application/zip", {"is_plan": "perhaps"}, 400),
        (archive("two"), "application/zip", {"files": "x"}, 400),
    ):
        assert (await refused(await send(world, content, kind, **asked)))[0] == status
    assert await in_force(world, "npm:one", "npm:two") == {"npm:one": "MAL-0"}


async def test_an_archive_may_be_long_but_not_endless(world: World, monkeypatch) -> None:
    """Its length is counted while it arrives: a header may say anything, or be missing."""
    bounds = {re.compile(f"{BLOCKLIST}/imports"): 200_000}
    monkeypatch.setattr(world.app.request_class, "long_bodies", bounds)
    long = await send(world, b"x" * 150_000)
    endless = await send(world, b"x" * 250_000)

    assert (await refused(long))[0] == 400
    assert (await refused(endless))[0] == 413


async def test_an_archive_is_read_in_threads(world: World, monkeypatch) -> None:
    """It has some hundred thousand records."""
    threads = threads_of(monkeypatch, blocklist, "_next_part")

    assert (await send(world, archive("one"))).status_code == 200
    assert threads
    assert threading.get_ident() not in threads


def _sent(world: World, pieces: AsyncIterator[dict[str, Any]]) -> tuple[Any, Any, list[Any]]:
    """A request's scope, how its body is received, and what is answered."""
    headers = {**world.admin, "content-type": "application/zip", "host": "localhost"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": f"{BLOCKLIST}/imports",
        "query_string": b"file=osv.zip",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> Any:
        return await anext(pieces)

    return scope, receive, []


async def _answer(world: World, pieces: AsyncIterator[dict[str, Any]]) -> int:
    """The status of the answer to an archive that arrives in `pieces`."""
    scope, receive, answered = _sent(world, pieces)

    async def send(message: Any) -> None:
        answered.append(message)

    await world.app(scope, receive, send)
    return int(answered[0]["status"])


async def test_an_archive_is_received_no_faster_than_it_is_written(
    world: World, monkeypatch
) -> None:
    """One of a gigabyte must not wait in memory for a slow disk."""
    received, written, waiting = 0, 0, []

    async def pieces() -> AsyncIterator[dict[str, Any]]:
        nonlocal received
        for _ in range(64):
            received += 2**18
            yield {"type": "http.request", "body": b"0" * 2**18, "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()

    async def write(function: Any, *arguments: Any) -> Any:
        nonlocal written
        await asyncio.sleep(0)
        written += sum(map(len, arguments))
        waiting.append(received - written)
        return function(*arguments)

    monkeypatch.setattr(request_parsing, "run_uncancellable", write)

    assert await _answer(world, pieces()) == 400  # it is no zip
    assert written == 2**24
    assert max(waiting) <= 2**21


async def test_who_stops_sending_an_archive_is_answered(world: World) -> None:
    world.app.config["BODY_TIMEOUT"] = 0.05

    async def pieces() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "http.request", "body": b"PK", "more_body": True}
        await asyncio.Event().wait()

    assert await _answer(world, pieces()) == 408


async def test_an_archive_is_kept_in_the_data_dir_and_a_full_disk_is_said(
    world: World, monkeypatch
) -> None:
    folders = []

    def full(dir: Path) -> Any:  # noqa: A002 - as the function is called
        folders.append(dir)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(request_parsing.tempfile, "TemporaryFile", full)

    assert (await refused(await send(world, b"PK")))[0] == 507
    assert folders == [world.services.settings.temp_dir]
