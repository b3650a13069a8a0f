"""Who read the log: a row for an actor, hour and kind of read, written behind."""

import asyncio

import pytest
from msgspec.structs import replace

from service.access.roles import Capability
from service.app.application import app_of
from service.app.audit_reads import KINDS
from service.app.composition import EXTENSION, build_services
from service.core.errors import StoreUnavailable
from service.orgs.api_keys import issue_api_key
from service.web.documentation import documentation_of
from tests.conftest import BY_OPERATOR, SCRAPER, running_world
from tests.databases import IS_POSTGRESQL, database_url
from tests.other_programs import write_lock
from tests.processes.command_line import invoke
from tests.service.pages.page import AUDIT, ORG, OWN_PAGE

API = "/api/v1/admin/orgs/acme/audit"
NO_ROWS = {
    "alerts.rules",
    "audit_sql.run",  # each run is a row
    "evidence.checkpoint",
    "evidence.consistency",
    "evidence.tile",
    "exports.exports",
    "exports.receipt",
    "exports.show_export",
    "evidence_report.review",
    "searches.create",
    "searches.delete",
    "searches.list_",
}
"""Endpoints for those who may read the log that show no rows of it, or record that themselves."""

PAGES_WITHOUT_ROWS = {
    "dashboard_streams.streams_page",
    "audit_export.dashboard_export",  # each export is two rows
    "dashboard_advice.advice_page",
    "dashboard_bindings.bindings_page",
    "dashboard_create_binding.new_page",
    "dashboard_create_binding.replace_page",
    "dashboard_exceptions.exceptions_page",
    "dashboard_exceptions.new_exception",
    "dashboard_explain.explain_page",
    "dashboard_exports.export_page",
    "dashboard_exports.export_progress",
    "dashboard_exports.exports_page",
    "dashboard_keys.keys_page",
    "dashboard_members.members_page",
    "dashboard_policy_check.check_page",
    "dashboard_projects.projects_page",
    "dashboard_rejected.rejected_page",
    "dashboard_reports.reports_page",
    "dashboard_repository.repository_page",
    "dashboard_roles.roles_page",
    "dashboard_sql.sql_page",
    "dashboard_teams.teams_page",
}


@pytest.fixture
async def reading(settings, clock):
    async with running_world(
        replace(settings, record_reads=True), clock, has_sealer=False
    ) as world:
        yield world


async def get(world, path, who="auditor"):
    headers = world.admin if who == "admin" else world.session(who) | OWN_PAGE
    answer = await world.client.get(path, headers=headers)
    await answer.get_data()
    return answer.status_code


async def recorded(world):
    """Actor, hour and kind of what is recorded, the oldest first; the operator is who asks."""
    await world.services.audit_reads.flush()
    rows = reversed(await world.audit(event="audit_read", actor="!system:admin-token"))
    return [(row["actor"], row["payload"]["hour"][:13], row["payload"]["kind"]) for row in rows]


def actor(world, who):
    return f"github:{world.members[who].id}"


async def test_a_read_is_a_row_once_an_hour_and_kind(reading):
    """Automatic repeats, too: who leaves a page open reads once an hour."""
    me = actor(reading, "auditor")
    for _ in range(3):
        assert await get(reading, AUDIT) == 200
        assert await get(reading, API) == 200
        assert await get(reading, f"{API}/accepted") == 200
    hour = f"{reading.clock():%Y-%m-%dT%H}"
    first = [(me, hour, "page"), (me, hour, "api"), (me, hour, "live")]
    assert await recorded(reading) == first

    reading.clock.advance(seconds=3600)
    assert await get(reading, AUDIT) == 200
    later = f"{reading.clock():%Y-%m-%dT%H}"
    assert (me, later, "page") in await recorded(reading)


async def test_a_request_writes_nothing(reading):
    before = await reading.services.store.last_seq()
    assert await get(reading, AUDIT) == 200
    assert await reading.services.store.last_seq() == before
    await reading.services.audit_reads.flush()
    assert await reading.services.store.last_seq() == before + 1


async def test_one_row_is_a_kind_of_its_own(reading):
    (row, *_) = await reading.audit()
    for path in (f"{API}/{row['id']}", f"{AUDIT}/{row['id']}", f"{AUDIT}/{row['id']}/details"):
        assert await get(reading, path) == 200
    kinds = [kind for who, _, kind in await recorded(reading) if who == actor(reading, "auditor")]
    assert kinds == ["row"]


async def test_keys_and_the_operator_are_recorded_by_their_actors(reading):
    async with reading.services.store.write() as work:
        key, secret = await issue_api_key(
            work, reading.acme, "reader", None, BY_OPERATOR, scopes=["audit:r"]
        )
    answer = await reading.client.get(API, headers={"x-service-api-key": secret})
    assert answer.status_code == 200
    assert await get(reading, API, "admin") == 200
    await reading.services.audit_reads.flush()
    actors = {row["actor"] for row in await reading.audit(event="audit_read")}
    assert actors == {key.id, "system:admin-token"}


async def test_the_row_has_what_is_known_of_the_first_read(reading):
    assert await get(reading, AUDIT) == 200
    assert await recorded(reading) != []
    (row,) = await reading.audit(event="audit_read", actor=actor(reading, "auditor"))
    assert row["verdict_source"] == "dashboard"
    assert row["request_id"] is not None
    assert row["decision"] is None


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
        ("member", AUDIT, 403),
        ("stranger", AUDIT, 403),
        ("auditor", f"{AUDIT}?nothing=1", 400),
        ("auditor", f"{API}/aud_0000000000000000000", 404),
        ("auditor", f"{API}?since=x", 400),
    ],
)
async def test_what_was_refused_is_no_read(reading, who, path, status):
    assert await get(reading, path, who) == status
    assert await recorded(reading) == []


async def test_a_page_that_shows_no_rows_to_its_reader_is_no_read(reading):
    """The overview has rows only for those who may read the log."""
    assert await get(reading, ORG, "member") == 200
    assert await recorded(reading) == []
    assert await get(reading, ORG) == 200
    ((who, _, kind),) = await recorded(reading)
    assert (who, kind) == (actor(reading, "auditor"), "excerpt")


async def test_several_processes_write_one_row(reading):
    """Which of them comes first is decided in the transaction that writes."""
    other = build_services(reading.services.settings, reading.clock)
    try:
        app = app_of(other)
        headers = reading.session("auditor") | OWN_PAGE
        assert (await app.test_client().get(AUDIT, headers=headers)).status_code == 200
        assert await get(reading, AUDIT) == 200
        await reading.services.audit_reads.flush()
        assert app.extensions[EXTENSION] is other
        await other.audit_reads.flush()
    finally:
        await other.close()
    assert len(await reading.audit(event="audit_read")) == 1


async def test_a_clean_stop_loses_nothing(reading):
    assert await get(reading, AUDIT) == 200
    await reading.services.flush()
    assert len(await reading.audit(event="audit_read")) == 1


async def test_a_command_on_the_data_dir_is_recorded_when_it_ends(reading):
    data_dir = reading.services.settings.data_dir
    environment = {
        "COUNTERSIGN_DATA_DIR": str(data_dir),
        "COUNTERSIGN_DATABASE_URL": database_url(data_dir),
    }
    for _ in range(2):
        ran = await asyncio.to_thread(invoke, ["audit", "query", "--org", "acme"], environment)
        assert ran.code == 0
    assert [row["actor"] for row in await reading.audit(event="audit_read")] == ["system:cli"]


async def test_a_failed_write_is_repeated(settings, clock):
    # On PostgreSQL a new connection needs some of it.
    wait_s = 1.0 if IS_POSTGRESQL else 0.1
    impatient = replace(settings, record_reads=True, database_wait_s=wait_s)
    async with running_world(impatient, clock, has_sealer=False) as world:
        assert await get(world, AUDIT) == 200
        with write_lock(settings.data_dir):  # noqa: SIM117 - it is held before
            with pytest.raises(StoreUnavailable):
                await world.services.audit_reads.flush()
        assert len(await recorded(world)) == 1


async def test_memory_is_bounded_and_what_is_left_out_counted(reading, monkeypatch):
    monkeypatch.setattr("service.app.audit_reads.READS_MAX", 1)
    assert await get(reading, AUDIT) == 200
    assert await get(reading, API) == 200
    assert len(await recorded(reading)) == 1
    answer = await reading.client.get("/metrics", headers=SCRAPER)
    assert "countersign_audit_reads_dropped_total 1.0" in await answer.get_data(as_text=True)


async def test_reads_can_be_left_unrecorded(world):
    """Recording what members read may need their consent."""
    assert not world.services.settings.record_reads
    assert await get(world, AUDIT) == 200
    assert await recorded(world) == []


def test_every_endpoint_that_shows_rows_has_its_kind(reading_app):
    """One that is added must be in the table, or among those that show none."""
    endpoints = {rule.endpoint for rule in reading_app.url_map.iter_rules()}
    assert set(KINDS) | NO_ROWS <= endpoints
    for_readers = {
        name
        for name in endpoints
        if (declared := documentation_of(reading_app.view_functions[name])) is not None
        and declared.capability is Capability.AUDIT_READ
    }
    assert for_readers - set(KINDS) == NO_ROWS
    pages = {
        rule.endpoint
        for rule in reading_app.url_map.iter_rules()
        if rule.rule.startswith("/admin/ui/orgs/") and "GET" in rule.methods
    }
    assert pages - set(KINDS) == PAGES_WITHOUT_ROWS


@pytest.fixture
async def reading_app(world):
    return world.app
