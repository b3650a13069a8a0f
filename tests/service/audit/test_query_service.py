"""GET …/audit: pages of the audit log."""

from datetime import timedelta

import pytest

from analytics.model.schema import WIRE_COLUMNS
from tests.analytics.samples import sample_row
from tests.conftest import START, refused
from tests.service.audit.conftest import AuditWorld

LIMIT_TEXT = "limit must be an integer from 1 to 1000"


async def fill(audit, rows: int) -> None:
    """`rows` rows a second apart."""
    await audit.accept([sample_row(START - timedelta(seconds=rows - n)) for n in range(rows)])


async def test_a_page_says_whose_rows_how_to_go_on_and_how_far_back(audit):
    """Decision 25: these four keys, always."""
    page = await audit.page()

    assert list(page) == ["org", "entries", "next_cursor", "retention_floor"]
    assert page["org"] == "acme"
    assert page["next_cursor"] is None


async def test_every_entry_has_every_key_in_the_one_order(audit):
    """A missing key and a null one would be two things to ask a reader to know."""
    await audit.accept(
        [sample_row(START, package_name=None, subject=None, request_id=None, source_ip=None)]
    )
    await audit.seal()
    await audit.accept([sample_row(START)])

    entries = (await audit.page())["entries"]

    assert len(entries) > 2
    assert all(list(entry) == list(WIRE_COLUMNS) for entry in entries)


async def test_an_entry_shows_its_row(audit):
    await audit.accept([sample_row(START, package_name="@acme/left-pad")])

    entry = (await audit.page())["entries"][0]

    assert entry.pop("id").startswith("aud_")
    assert entry == {
        "created_at": "2026-03-04T12:00:00.123456Z",
        "event": "blocklist_hit",
        "packageName": "@acme/left-pad",
        "version": "1.3.0",
        "decision": "BLOCKED",
        "decision_reason": '{"rule_id":"r1","source":"osv"}',
        "verdict_source": "proxy",
        "tenant_id": audit.world.acme.id,
        "actor_tenant_id": None,
        "actor": "key_1",
        "actor_source": "api_key",
        "subject": "repo:acme/payments",
        "oidc_binding_id": "obind_1",
        "request_id": "req_1",
        "source_ip": "192.0.2.7",
        "received_at": "2026-03-04T12:00:00.123456Z",
        "payload": {"rule_id": "r1", "source": "osv"},
        "ecosystem": "npm",
        "repository_id": "123456789",
        "run_id": "9876543210",
        "token_id": "6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11",
        "file_name": "left-pad-1.3.0.tgz",
        "file_sha256": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "client": "npm/11.19.1",
    }


async def test_a_page_has_100_rows_unless_asked_otherwise(audit):
    await fill(audit, 150)

    assert len((await audit.page())["entries"]) == 100


@pytest.mark.parametrize("limit", ["1", "1000", "0001"])
async def test_a_limit_from_1_to_1000_is_kept(audit, limit):
    await fill(audit, 1100)

    assert len((await audit.page(limit=limit))["entries"]) == int(limit)


@pytest.mark.parametrize(
    "limit",
    ["0", "1001", "-1", "+1", "abc", "1.0", "1e2", "", " 1", "1 ", "١", "0x1", "9" * 30, "1\n"],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_any_other_limit_is_refused_and_never_clamped(shared_world, limit):
    """A script that asked for 5,000 and got 1,000 would think it had all."""
    answer = await AuditWorld(shared_world).get(limit=limit)

    assert await refused(answer) == (400, LIMIT_TEXT)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"pakage": "x"}, "unknown query parameter: pakage"),
        ({"package": ""}, "package must not be empty"),
        ({"limit": ["1", "2"]}, "limit may be given only once"),
        ({"cursor": ["x", "x"]}, "cursor may be given only once"),
        ({"since": ["2026-03-04", "2026-03-05"]}, "since may be given only once"),
    ],
)
async def test_a_faulty_parameter_is_a_400_that_names_it(audit, query, text):
    assert await refused(await audit.get(**query)) == (400, text)


async def test_a_plus_that_became_a_space_is_still_an_offset(audit):
    """Curl does not encode it; the bound means what was typed."""
    await audit.accept([sample_row(START)])
    path = "?since=2026-03-04T14:00:00+02:00&event=blocklist_hit"

    response = await audit.get(path)

    assert len((await response.get_json())["entries"]) == 1


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_rows_accepted_meanwhile_do_not_shift_pages(audit, order):
    """Page two begins where page one ended, whatever was accepted, sealed or back-dated since."""
    await fill(audit, 20)
    whole = (await audit.page(order=order, limit=1000))["entries"]
    first = await audit.page(order=order, limit=7)
    await audit.accept([sample_row(START - timedelta(seconds=n)) for n in range(30)])
    await audit.seal()
    await audit.accept([sample_row(START + timedelta(seconds=1))])

    rest = await audit.pages(order=order, limit=7, cursor=first["next_cursor"])

    assert len(rest) > 14
    assert first["entries"] + rest == whole


async def test_the_last_page_has_no_cursor_even_when_it_is_full(audit):
    """One more request for nothing is one too many."""
    await fill(audit, 10)
    everything = len((await audit.page(limit=1000))["entries"])

    assert (await audit.page(limit=everything))["next_cursor"] is None
    assert (await audit.page(limit=everything - 1))["next_cursor"] is not None
