"""Two tenants with the same hostile values: nothing shows one the other's rows."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from service.audit.refusals import AuditRowNotFound
from service.orgs.api_keys import issue_api_key
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, START, refused

HOSTILE = [
    "'",
    '"',
    "' OR '1'='1",
    "'; DROP TABLE segments; --",
    "../../tenant=other",
    "..\\..",
    "a\x00b",
    "%",
    "%2e%2e%2f",
    "_",
    "\\",
    "\\*",
    "!x",
    "x*",
    "$watermark",
    "🦊👩‍👩‍👧",
    "\u202egnp.exe",
    "=cmd|' /C calc'!A0",
    "line\nbreak,and;comma",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "x" * 10_000,
]
SECRET = {"acme": "only-acme-knows", "other": "only-other-knows"}


@pytest.fixture
async def neighbours(audit):
    """Both organisations hold one row for each hostile value, half of them sealed."""
    for half, is_sealed in ((HOSTILE[::2], True), (HOSTILE[1::2], False)):
        for org in (audit.world.acme, audit.world.other):
            rows = [
                sample_row(
                    START - timedelta(seconds=n),
                    package_name=value,
                    version=SECRET[org.slug],
                    actor=value,
                    subject=value,
                    request_id=value,
                    payload=json.dumps({"value": value, "of": SECRET[org.slug]}),
                )
                for n, value in enumerate(half)
            ]
            await audit.accept(rows, org)
        if is_sealed:
            await audit.seal()
    return audit


def escaped(value: str) -> str:
    """`value` as a filter that means it literally."""
    text = value.replace("\\", "\\\\")
    text = f"\\{text}" if text.startswith("!") else text
    return f"{text[:-1]}\\*" if text.endswith("*") else text


async def text_of(neighbours, path: str = "", slug: str = "acme", **query: Any) -> str:
    response = await neighbours.get(path, slug, **query)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_data(as_text=True)


@pytest.mark.parametrize("parameter", ["package", "actor", "subject", "request_id"])
async def test_a_hostile_value_finds_its_own_tenants_row_and_nothing_else(neighbours, parameter):
    for value in HOSTILE:
        page = await neighbours.page(**{parameter: escaped(value)})
        assert [entry["packageName"] for entry in page["entries"]] == [value]
        assert {entry["version"] for entry in page["entries"]} == {SECRET["acme"]}
        assert {entry["tenant_id"] for entry in page["entries"]} == {neighbours.world.acme.id}


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"order": "asc"},
        {"package": "*"},
        {"package": "!nothing"},
        {"version": SECRET["other"]},
        {"tenant_id": "other"},
        {"limit": "1000"},
    ],
)
async def test_no_page_summary_or_export_shows_the_other(neighbours, query):
    for path, more in [
        ("", {}),
        ("/summary", {}),
        *(("/export", {"format": form}) for form in ("csv", "json", "ndjson")),
    ]:
        if path == "/summary" and ("order" in query or "limit" in query):
            continue
        if path == "/export" and "limit" in query:
            continue
        response = await neighbours.get(path, "acme", **query, **more)
        assert response.status_code == (400 if "tenant_id" in query else 200)
        shown = await response.get_data(as_text=True)
        assert neighbours.world.other.id not in shown
        if query.get("version") != SECRET["other"]:
            assert SECRET["other"] not in shown
        else:
            assert SECRET["acme"] not in shown


async def test_the_others_row_is_not_there(neighbours):
    """Ids count through all tenants, so they can be guessed."""
    theirs = json.loads(await text_of(neighbours, slug="other", limit=1000))["entries"]
    for entry in theirs:
        answer = await neighbours.get(f"/{entry['id']}")
        assert await refused(answer) == (404, AuditRowNotFound.text)


@pytest.mark.parametrize(
    "slug",
    [
        "../other",
        "acme/../other",
        "acme%2f..%2fother",
        "ACME",
        "acme ",
        "acme\x00",
        "%",
        "*",
        "acme'--",
        "acme;other",
        "🦊",
        "x" * 10_000,
    ],
)
async def test_a_hostile_slug_is_no_organisation(neighbours, slug):
    answer = await neighbours.world.client.get(
        f"/api/v1/admin/orgs/{quote(slug, safe='/%')}/audit", headers=neighbours.world.admin
    )

    assert answer.status_code in (400, 404)
    assert "only-" not in await answer.get_data(as_text=True)


async def test_a_body_cannot_name_a_tenant(neighbours):
    async with neighbours.services.store.write() as work:
        acme = await work.session.merge(neighbours.world.acme)
        _, secret = await issue_api_key(work, acme, "proxy", None, BY_OPERATOR, scopes=PROXY_SCOPES)
    item = {"event": "install_allowed", "packageName": "p", "tenant_id": neighbours.world.other.id}
    before = await text_of(neighbours, slug="other", limit=1000)
    path = "/api/v1/admin/orgs/{}/audit/events"

    answer = await neighbours.world.client.post(
        path.format("acme"), headers={"x-service-api-key": secret}, json=[item]
    )
    stranger = await neighbours.world.client.post(
        path.format("other"), headers={"x-service-api-key": secret}, json=[item]
    )

    assert (await answer.get_json())["accepted"] == 0
    assert stranger.status_code == 403
    assert await text_of(neighbours, slug="other", limit=1000) == before
