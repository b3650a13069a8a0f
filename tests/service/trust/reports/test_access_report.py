"""Who could do what, as of a date: the report is what was seen at that date."""

import csv
import io
import random
from datetime import timedelta

import pytest

from analytics.model.instants import format_us
from service.access.roles import Capability, Role
from service.orgs.api_keys import KeyTerms, issue_api_key, revoke_api_key, rotate_api_key
from service.orgs.members import add_member, remove_member, set_role
from service.orgs.roles import set_role_override
from service.orgs.teams import create_team, set_team_admin
from service.store.journal import append
from service.store.organisations import (
    get_org_by_id,
    list_members,
    list_named_from,
    list_team_offices,
)
from service.store.tables import ApiKey, Organisation, Team
from tests.analytics.samples import sample_row
from tests.budgets import budget
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, START, World, any_scope, refused, unscoped_key
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.test_import import take

REPORT = "/api/v1/admin/orgs/acme/access-report"
TABLES = ("roles", "members", "teams", "api_keys", "bindings")
PRUNED = '{"first_day":"2026-03-04","last_day":"2026-03-05","days":["2026-03-05"],"rows":3}'
IMPORTED = (
    '{"source":"a","rows":99,"refused":0,"sha256":"x","first_day":"2026-01-01",'
    '"last_day":"2026-01-02"}'
)


async def report(world: World, **query: str) -> dict:
    response = await world.client.get(REPORT, headers=world.admin, query_string=query)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


def told(found: dict) -> dict:
    """What the report says of then, without what it says of since."""
    later = ("removed_at", "revoked_at", "expires_at")
    return {
        name: [{key: row[key] for key in row if key not in later} for row in found[name]]
        for name in TABLES
    }


async def at(world: World, instant) -> dict:
    return await report(world, asOf=format_us(instant))


async def test_the_present_is_what_the_tables_hold(world):
    await world.create()
    found = await report(world)
    members = {one["email"]: one for one in found["members"]}

    assert (found["org"], found["is_complete"]) == ("acme", True)
    assert found["as_of"] == found["made_at"] == found["rights_as_of"]
    assert set(members) == {
        f"{name}@acme.example" for name in ("owner", "admin", "auditor", "member", "team_admin")
    }
    assert members["auditor@acme.example"]["capabilities"] == ["audit:r", "audit:export", "alert:w"]
    assert members["team_admin@acme.example"]["administers"] == [world.team.id]
    (team,) = found["teams"]
    assert team["admins"] == [world.members["team_admin"].id]
    (binding,) = found["bindings"]
    assert binding["sub_pattern"] == "repo:acme/payments:ref:refs/heads/main"
    assert [role["role"] for role in found["roles"]] == list(Role)
    assert len(found["notes"]) == 1


async def test_what_changed_since_is_undone(world):
    """Roles, grants, offices, memberships, keys and bindings, each by what is recorded of it."""
    created = await (await world.create()).get_json()
    before = told(await at(world, world.clock()))
    then = world.clock()
    world.clock.advance(days=1)
    services, members = world.services, world.members
    async with services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        for name in ("auditor", "member", "team_admin"):
            members[name] = await work.session.merge(members[name])
        await set_role(work, acme, members["member"], "admin", BY_OPERATOR)
        await set_role(work, acme, members["member"], "owner", BY_OPERATOR)
        await set_role_override(work, acme, "member", ["oidc:r"], BY_OPERATOR)
        await set_role_override(work, acme, "member", [], BY_OPERATOR)
        await set_role_override(work, acme, "auditor", ["oidc:w"], BY_OPERATOR)
        await set_team_admin(work, world.team, members["auditor"], BY_OPERATOR, is_admin=True)
        await remove_member(work, acme, members["team_admin"], BY_OPERATOR)
        await remove_member(work, acme, members["auditor"], BY_OPERATOR)
        await add_member(work, acme, "new@acme.example", "admin", "google", BY_OPERATOR)
        await create_team(work, acme, "later", BY_OPERATOR)
        await issue_api_key(work, acme, "later", None, BY_OPERATOR, scopes=PROXY_SCOPES)
    path = f"/api/v1/admin/orgs/acme/oidc-bindings/{created['id']}"
    assert (await world.client.delete(path, headers=world.admin)).status_code == 200
    now = await report(world)

    assert told(await at(world, then)) == before
    assert told(await at(world, world.clock() - timedelta(seconds=1))) == before
    changed = await at(world, world.clock())
    assert told(changed) == told(now) != before
    emails = {one["email"]: one["role"] for one in now["members"]}
    assert emails["member@acme.example"] == "owner"
    assert "auditor@acme.example" not in emails
    assert now["bindings"] == []
    past = await at(world, then)
    removed = next(one for one in past["members"] if one["email"] == "auditor@acme.example")
    assert removed["removed_at"] == "2026-03-05T12:00:00.123Z"
    assert past["bindings"][0]["revoked_at"] is not None


async def test_keys_are_listed_while_they_were_accepted(world):
    """From their issue to their revocation or expiry; a rotation has both for the overlap."""
    async with world.services.store.write() as work:
        old, _ = await issue_api_key(
            work, world.acme, "proxy", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    world.clock.advance(days=1)
    async with world.services.store.write() as work:
        old = await work.session.get_one(ApiKey, old.id)
        new, _ = await rotate_api_key(
            work, world.acme, old, timedelta(days=2), KeyTerms(), BY_OPERATOR, any_scope
        )
    world.clock.advance(days=10)
    async with world.services.store.write() as work:
        new = await work.session.get_one(ApiKey, new.id)
        await revoke_api_key(work, world.acme, new, BY_OPERATOR)
    listed = {
        days: {key["id"] for key in (await at(world, START + timedelta(days=days)))["api_keys"]}
        for days in (0, 1, 2, 3, 10, 11)
    }

    assert listed == {
        0: {old.id},
        1: {old.id, new.id},
        2: {old.id, new.id},
        3: {new.id},
        10: {new.id},
        11: set(),
    }
    (key,) = (await at(world, START))["api_keys"]
    assert key["created_by"] == "system:cli"


async def test_every_moment_of_a_random_history_is_told_as_it_was(world):
    chance = random.Random(20261123)
    seen = []
    for _ in range(budget(30, 150)):
        world.clock.advance(hours=1)
        await _change_something(world, chance)
        seen.append((world.clock(), told(await report(world))))
    world.clock.advance(hours=1)

    for instant, then in seen:
        found = await at(world, instant + timedelta(minutes=chance.randrange(60)))
        assert told(found) == then, instant
        assert found["is_complete"]


async def _change_something(world: World, chance: random.Random) -> None:
    async with world.services.store.write() as work:
        acme = await get_org_by_id(work.session, world.acme.id)
        members = [one for one in await list_members(work.session, acme) if one.role != "owner"]
        teams = await list_named_from(work.session, acme, Team, "", "", 100)
        offices = await list_team_offices(work.session, acme)
        match chance.randrange(7):
            case 0:
                name = f"p{chance.randrange(10**9)}@acme.example"
                await add_member(work, acme, name, "member", "github", BY_OPERATOR)
            case 1 if members:
                await remove_member(work, acme, chance.choice(members), BY_OPERATOR)
            case 2 | 3 if members:
                role = chance.choice(["admin", "auditor", "member"])
                await set_role(work, acme, chance.choice(members), role, BY_OPERATOR)
            case 4:
                names = chance.sample(list(Capability), chance.randrange(3))
                await set_role_override(work, acme, chance.choice(list(Role)), names, BY_OPERATOR)
            case 5 if members:
                member, team = chance.choice(members), chance.choice(teams)
                await set_team_admin(work, team, member, BY_OPERATOR, is_admin=True)
            case 6 if offices:
                team, member = chance.choice(offices)
                await set_team_admin(work, team, member, BY_OPERATOR, is_admin=False)
            case _:
                name = f"t{chance.randrange(10**9)}"
                await create_team(work, acme, name, BY_OPERATOR)


async def test_what_is_past_retention_is_not_made_up(world):
    """The report says which part of it is later than asked for, and of when."""
    world.clock.advance(days=1)
    async with world.services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        member = await work.session.merge(world.members["member"])
        await set_role(work, acme, member, "admin", BY_OPERATOR)
    world.clock.advance(days=365)  # the change is one instant past the floor's other side
    exact = await at(world, START + timedelta(days=1))
    assert exact["is_complete"]
    world.clock.advance(seconds=1)
    found = await at(world, START)

    assert not found["is_complete"]
    assert found["rights_as_of"] == found["retention_floor"] == "2026-03-05T12:00:01.123456Z"
    assert "are past retention or dropped" in found["notes"][0]
    roles = {one["email"]: one["role"] for one in found["members"]}
    assert roles["member@acme.example"] == "admin", "as of rights_as_of, which is what it says"


async def test_rows_dropped_before_the_tier_was_raised_are_missed(world):
    """No floor hides them any more; the row about the pruning says that they are gone."""
    async with world.services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        acme.tier = "enterprise"
        row = sample_row(START + timedelta(days=30), event="audit_pruned", payload=PRUNED)
        await append(work.session, acme.id, [row], now=START + timedelta(days=30))
    world.clock.advance(days=40)

    found = await at(world, START)
    assert found["retention_floor"] is None
    assert found["rights_as_of"] == "2026-03-06T00:00:00.000000Z"
    assert (await at(world, START + timedelta(days=2)))["is_complete"]


async def test_imported_rows_tell_nothing_of_this_organisation(world):
    """They may be another service's history; the tables here never held it."""
    member = world.members["member"].id
    payload = f'{{"member_id":"{member}","role_before":"owner","role_after":"member"}}'
    world.clock.advance(days=2)
    told = [
        ("member_role_changed", payload),
        ("audit_pruned", PRUNED),
        # An import of the other service, of more rows than this file has.
        ("audit_imported", IMPORTED),
    ]
    day = format_us(START + timedelta(days=1))
    lines = [f'{{"created_at":"{day}","event":"{name}","envelope":{text}}}' for name, text in told]
    async with world.services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        await set_role(
            work, acme, await work.session.merge(world.members["member"]), "admin", BY_OPERATOR
        )
    await take(AuditWorld(world), "\n".join(lines).encode())

    found = await at(world, START)
    assert {one["id"]: one["role"] for one in found["members"]}[member] == "member"
    assert found["is_complete"]


@pytest.mark.parametrize("back", [timedelta(microseconds=1), timedelta(hours=12)])
async def test_a_change_under_a_clock_that_was_set_back_is_this_organisations(world, back):
    """Its row was received no earlier than the one before: later than it says it happened."""
    world.clock.now = START + timedelta(days=1) - back
    async with world.services.store.write() as work:
        acme = await work.session.get_one(Organisation, world.acme.id)
        member = await work.session.merge(world.members["member"])
        await append(work.session, acme.id, [sample_row()], now=START + timedelta(days=1))
        await set_role(work, acme, member, "owner", BY_OPERATOR)
    world.clock.now = START + timedelta(days=2)

    (row,) = await world.audit(event="member_role_changed")
    assert row["created_at"] < row["received_at"]
    then = {one["id"]: one["role"] for one in (await at(world, START))["members"]}
    assert then[member.id] == "member"


async def test_a_key_that_reads_is_told_from_one_that_sends(world):
    """A report that says of every key that it sends rows hides who could read them."""
    async with world.services.store.write() as work:
        key, _ = unscoped_key(world.acme.id, name="old", created_at=world.clock.now)
        work.session.add(key)
        for name, scopes in (("proxy", PROXY_SCOPES), ("siem", ["audit:r", "audit:export"])):
            await issue_api_key(work, world.acme, name, None, BY_OPERATOR, scopes=scopes)
        world.clock.advance(seconds=1)
    table = await world.client.get(REPORT, headers=world.admin, query_string={"format": "csv"})
    page = await world.client.get(
        "/admin/ui/orgs/acme/reports/access", headers=world.session("owner")
    )

    listed = {key["name"]: key["scopes"] for key in (await at(world, world.clock()))["api_keys"]}
    rows = csv.DictReader(io.StringIO(await table.get_data(as_text=True)))
    may = {row["name"]: row["capabilities"] for row in rows if row["kind"] == "api_key"}
    assert {name: sorted(scopes) for name, scopes in listed.items()} == {
        "old": [],
        "proxy": ["audit:ingest", "packages:install"],
        "siem": ["audit:export", "audit:r"],
    }
    assert may == {
        "old": "send rows, install (no scopes: rotate it)",
        "proxy": "packages:install audit:ingest",
        "siem": " ".join(listed["siem"]),
    }
    assert 'data-label="May"><span class="cut">' + ", ".join(listed["siem"]) in await page.get_data(
        as_text=True
    )


async def test_as_csv_it_is_one_table(world):
    async with world.services.store.write() as work:
        await issue_api_key(
            work, world.acme, "＝1;=1", world.project, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    response = await world.client.get(
        REPORT, headers=world.session("auditor"), query_string={"format": "csv"}
    )
    text = await response.get_data(as_text=True)
    rows = list(csv.DictReader(io.StringIO(text)))

    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert 'filename="acme-access-20260304T120000Z.csv"' in response.headers["content-disposition"]
    assert [row["kind"] for row in rows] == [
        *("report", "member", "member", "member", "member", "member"),
        *("role", "role", "role", "role", "team", "api_key"),
    ]
    team_admin = next(row for row in rows if row["name"] == "team_admin@acme.example")
    assert (team_admin["role"], team_admin["limited_to"]) == ("member", "admin of platform")
    assert rows[-1]["name"] == "'＝1;=1"
    assert '"\'＝1;=1"' in text
    assert rows[-1]["limited_to"] == world.project.id


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"asOf": "2026-03-05"}, "asOf must not be in the future"),
        ({"asOf": "2026-03-04"}, "asOf is before the organisation was created"),
        (
            {"asOf": "yesterday"},
            "asOf must be a date or an RFC 3339 instant (2026-01-31T08:00:00Z)",
        ),
        ({"format": "pdf"}, "format must be one of json, csv"),
        ({"as_of": "2026-03-04"}, "unknown query parameter: as_of"),
    ],
)
async def test_what_cannot_be_reported_says_why(world, query, text):
    response = await world.client.get(REPORT, headers=world.admin, query_string=query)

    assert await refused(response) == (400, text)


async def test_of_another_organisation_nothing_is_told(world):
    found = await (
        await world.client.get(REPORT.replace("acme", "other"), headers=world.admin)
    ).get_json()

    assert [one["email"] for one in found["members"]] == ["stranger@other.example"]
    assert found["teams"] == []
