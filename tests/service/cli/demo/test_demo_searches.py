"""Whichever way people write what is in the demo, they find it."""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select

from service.access.callers import cli_caller, member_actor
from service.cli.audit import audit_query
from service.cli.client import Client
from service.cli.demo.seed import DEMO_ORG
from service.store.tables import ApiKey, Member
from tests.budgets import sample
from tests.service.cli.demo.conftest import Demo, Row
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load

pytestmark = pytest.mark.asyncio(loop_scope="package")
SEARCHES = [
    tuple(line.split(" => ", 1))
    for line in Path(__file__).with_name("searches.txt").read_text().splitlines()
    if " => " in line and not line.startswith("#")
]


BEFORE_5_4 = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "5.4"}]}]
TWO = [("pyyaml", "PyPI", "6.0.1"), ("node-ipc", "npm", "10.1.1")]
ADVISORIES = [
    osv_record("GHSA-pjwm-rvh2-c87w", "ua-parser-js", ranges=[], versions=["0.7.29", "1.0.0"]),
    osv_record("PYSEC-2021-142", "pyyaml", "PyPI", ranges=BEFORE_5_4, aliases=["CVE-2020-14343"]),
    osv_record("MAL-2026-77", "event-stream"),
    *(
        osv_record(f"GHSA-{n}{n}{n}{n}-2222-3333", *each[:2], ranges=[], versions=[each[2]])
        | {"aliases": ["CVE-2026-7000"]}
        for n, each in enumerate(TWO)
    ),
]
"""What the operator imported: of a package some, old or all versions; and of two packages."""


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def ids(demo: Demo, rows: list[Row]) -> dict[str, str]:
    """The demo's own ids that the table names; advisories are imported."""
    await load(demo.services.store, osv_zip(ADVISORIES), ["*"])
    row = next(row for row in rows if row.run_id and (row.subject or "").startswith("repo:"))
    async with demo.services.store.read() as session:
        keys = {key.name: key.id for key in await session.scalars(select(ApiKey))}
        members = {
            member.email.partition(".")[0]: member
            for member in await session.scalars(select(Member))
        }
    return {
        "repository": str(row.subject).split(":")[1],
        "run": str(row.run_id),
        "jti": str(row.token_id),
        "binding": str(row.oidc_binding_id),
        "request": str(row.request_id),
        "digest": str(row.file_sha256),
        "key": keys["storefront-ci"],
        "jenkins": keys["legacy-jenkins"],
        "mara_id": members["mara"].id,
    } | {
        name: member_actor(members[name].identity_provider, members[name].id)
        for name in ("mara", "viktor")
    }


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests may take longer than people should wait."""
    monkeypatch.setattr("service.audit.search.LOOK_UP_MAX_S", 60.0)
    monkeypatch.setattr("service.audit.unknown_values.TIME_MAX_S", 60.0)
    monkeypatch.setattr("service.audit.unknown_values.ALL_MAX_S", 120.0)


def _filled(text: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace(f"{{{name}}}", value)
    return text


async def _total(demo: Demo, **query: Any) -> int:
    answer = await demo.answer(f"/api/v1/admin/orgs/{DEMO_ORG}/audit/summary", **query)
    return int((await answer.get_json())["total"])


async def test_the_table_has_two_hundred_searches() -> None:
    assert len({search for search, _ in SEARCHES}) == len(SEARCHES) >= 200


async def _page(demo: Demo, text: str) -> list[dict[str, Any]]:
    answer = await demo.answer(f"/api/v1/admin/orgs/{DEMO_ORG}/audit", q=text, limit=5)
    return list((await answer.get_json())["entries"])


@sample(30)
@pytest.mark.parametrize(("search", "expected"), SEARCHES)
async def test_a_search_finds_its_rows_or_names_the_nearest(
    demo: Demo, ids: dict[str, str], search: str, expected: str
) -> None:
    text, (filters, _, nearest) = _filled(search, ids), _filled(expected, ids).partition(" near ")
    query: dict[str, list[str]] = {}
    for name, value in (each.split("=", 1) for each in filters.split(" ")):
        query.setdefault(name, []).append(value)

    found = await _total(demo, q=text)

    if not nearest:
        assert found == await _total(demo, **query) > 0
        return
    answer = await demo.answer(f"/api/v1/admin/orgs/{DEMO_ORG}/audit/unknown-values", q=text)
    unknown = {each["parameter"]: each for each in (await answer.get_json())["unknown"]}
    (name, (value,)) = next(iter(query.items()))
    assert found == 0
    assert unknown[name]["value"] == value
    assert unknown[name]["nearest"].startswith(nearest)


@sample(4)
@pytest.mark.parametrize(("search", "expected"), SEARCHES)
async def test_the_command_finds_the_same(
    demo: Demo, ids: dict[str, str], search: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, (_, _, nearest) = _filled(search, ids), expected.partition(" near ")
    async with Client.of_data_dir(demo.services, cli_caller("org_operator")) as client:
        answer = await audit_query(
            client, DEMO_ORG, text, explain=False, is_followed=False, limit=5, cursor=None
        )

    assert answer.data["entries"] == await _page(demo, text)
    assert bool(answer.data["entries"]) is not bool(nearest)
    assert not nearest or f"the nearest is {nearest}" in capsys.readouterr().err


async def test_the_command_names_the_search_for_all_versions(
    demo: Demo, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Client.of_data_dir(demo.services, cli_caller("org_operator")) as client:
        await audit_query(
            client, DEMO_ORG, "PyYAML<6", explain=False, is_followed=False, limit=1, cursor=None
        )

    assert (
        "PyYAML<6 was read as package pyyaml, version 5.3.1; all versions: package pyyaml; exactly"
    ) in capsys.readouterr().err
