"""The specification's table of 400 texts, row by row."""

from typing import Any

import pytest
import pytest_asyncio

from service.orgs.projects import create_project
from service.orgs.teams import create_team
from service.trust.refusals import (
    CONDITION_UNKNOWN,
    CONDITION_VALUE_INVALID,
    CONDITIONS_NOT_TEXTS,
    CREATE_REFUSALS,
    TOO_MANY_BINDINGS,
    TOO_MANY_EVENT_NAMES,
)
from service.web.refusals import NOT_AN_OBJECT, UNKNOWN_FIELD
from tests.conftest import BY_OPERATOR, ISSUER, World, refused
from tests.service.trust.bindings.texts import documented

pytestmark = pytest.mark.asyncio(loop_scope="module")

MISSING = ...
FOREIGN_PROJECT = "a project of another organisation"
FOREIGN_TEAM = "a team of another organisation"
OWN_TEAM = "a team of this organisation"

TABLE: list[tuple[str, list[dict[str, Any]]]] = [
    ("issuer is required (string)", [{"issuer": v} for v in (MISSING, None, 7, True, [ISSUER])]),
    ("issuer is not on the allowlist: https://gitlab.com", [{"issuer": "https://gitlab.com"}]),
    ("issuer is not on the allowlist: ", [{"issuer": ""}]),
    (f"issuer is not on the allowlist: {ISSUER}/", [{"issuer": f"{ISSUER}/"}]),
    (f"issuer is not on the allowlist: {ISSUER.upper()}", [{"issuer": ISSUER.upper()}]),
    ("issuer is not on the allowlist: {value}", [{"issuer": "{value}"}]),
    (f"issuer is not on the allowlist: {'x' * 256}…", [{"issuer": "x" * 50_000}]),
    (
        "sub_pattern is required (string)",
        [{"sub_pattern": v} for v in (MISSING, None, 7, False, ["repo:acme"])],
    ),
    (
        "sub_pattern must be 1..1024 chars with no whitespace / control characters",
        [{"sub_pattern": "repo acme"}],
    ),
    (
        "repository_id must be a positive integer string",
        [{"repository_id": "12a"}],
    ),
    (
        "repository_id must be a positive integer or its string form",
        [{"repository_id": -1}],
    ),
    (
        f"repository_id is required for issuer {ISSUER}",
        [{"repository_id": v} for v in (MISSING, None)],
    ),
    (
        "event_names must be an array of strings",
        [{"event_names": v} for v in ("push", 7, {"push": 1}, ["push", 7], [None], [["push"]])],
    ),
    (
        "every event_names entry must be a non-whitespace 1..64-char string",
        [{"event_names": ["push", "pull request"]}],
    ),
    ("origin is required (string)", [{"origin": v} for v in (MISSING, None, 7, ["org_admin"])]),
    (
        "origin must be 'org_admin' or 'team_admin' on this surface",
        [{"origin": v} for v in ("platform_admin", "", "ORG_ADMIN", "org_admin ", "owner")],
    ),
    ("project_id must be a string", [{"project_id": v} for v in (7, True, ["proj_1"])]),
    (
        "project_id not found for this org",
        [{"project_id": v} for v in ("", "proj_0", "payments", "\ud800", FOREIGN_PROJECT)],
    ),
    ("team_id must be a string", [{"team_id": v} for v in (7, True, {})]),
    (
        "team_id not found for this org",
        [{"team_id": v} for v in ("", "team_0", "platform", "\ud800", FOREIGN_TEAM)],
    ),
    (
        "team_id is required for origin=team_admin",
        [{"origin": "team_admin", "team_id": v} for v in (MISSING, None)],
    ),
    (
        "team_admin binding falls outside any active org_admin envelope"
        " — ask an org admin to expand the trust envelope first",
        [{"origin": "team_admin", "team_id": OWN_TEAM}],
    ),
]
"""Each text, and the changes to a valid body that each bring it about."""

OURS = {
    CONDITION_UNKNOWN,
    CONDITION_VALUE_INVALID,
    CONDITIONS_NOT_TEXTS,
    NOT_AN_OBJECT,
    TOO_MANY_BINDINGS,
    TOO_MANY_EVENT_NAMES,
    UNKNOWN_FIELD,
}
"""Refusals of a create that the specification's table does not know."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def names(shared_world: World) -> dict[str, str]:
    """What the placeholders of the table stand for."""
    async with shared_world.services.store.write() as work:
        project = await create_project(work, shared_world.other, "theirs", BY_OPERATOR)
        team = await create_team(work, shared_world.other, "theirs", BY_OPERATOR)
    return {
        FOREIGN_PROJECT: project.id,
        FOREIGN_TEAM: team.id,
        OWN_TEAM: shared_world.team.id,
    }


@pytest.mark.parametrize(
    ("text", "changes"), [(text, changes) for text, rows in TABLE for changes in rows]
)
async def test_one_fault_in_a_valid_body_is_named_by_its_text(
    shared_world: World, names: dict[str, str], text: str, changes: dict[str, Any]
):
    """Scripts match on these texts, so they are exact."""
    meant = {
        key: names.get(value, value) if isinstance(value, str) else value
        for key, value in changes.items()
    }

    response = await shared_world.create(**meant)

    assert await refused(response) == (400, text)
    assert await shared_world.bindings() == []


async def test_the_table_holds_every_text_the_service_has_for_the_specification():
    """Every text needs a row here."""
    texts = [text for text, _ in TABLE]

    unseen = [
        refusal.text
        for refusal in CREATE_REFUSALS
        if refusal not in OURS and not any(documented(refusal).fullmatch(text) for text in texts)
    ]

    assert unseen == []


async def test_the_body_that_every_row_changes_is_itself_valid(shared_world: World):
    """Otherwise a row could be refused for a fault that all of them share."""
    created = await shared_world.create()

    assert created.status_code == 201
    assert await refused(await shared_world.create()) == (
        409,
        "An active binding already exists for this (issuer, sub, repository_id)",
    )
