"""What tests of the policy pages share: sending their forms, and what is in force after."""

from typing import Any

from service.packages.policy.document import decode_document, parse_policy, to_json
from service.packages.policy.repository import find_revision, set_policy
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, World
from tests.service.pages.page import ORG, Page, send, shown
from tests.service.pages.people.desk import see

POLICY = f"{ORG}/policy"
PREVIEW = f"{POLICY}/preview"
LEFT_PAD = {"ecosystem": "npm", "package": "left-pad", "versions": ["<1.3.0"], "id": "old-pad"}
RULE = {"ecosystem": "npm", "package": "left-pad", "versions": "<1.3.0", "id": "", "reason": ""}
"""The fields of a form that adds a rule."""


async def put(world: World, document: dict[str, Any], org: str = "acme") -> int:
    tenant = world.acme if org == "acme" else world.other
    async with world.services.store.write() as work:
        present = await work.session.get_one(Organisation, tenant.id)
        revision = await set_policy(work, present, parse_policy(document), BY_OPERATOR)
        assert revision is not None
        return revision.revision


async def in_force(world: World, org: str = "acme") -> tuple[int, dict[str, Any]]:
    """The revision in force and its document; (0, {}) without one."""
    tenant = world.acme if org == "acme" else world.other
    async with world.services.store.read() as session:
        revision = await find_revision(session, tenant.id)
    return (
        (0, {})
        if revision is None
        else (revision.revision, to_json(decode_document(revision.document)))
    )


async def csrf(world: World, who: str = "owner") -> dict[str, str]:
    """What ties a form to the session of `who`, from a page of theirs."""
    page = await see(world, "policy/exceptions/new", who)
    return {"csrf": page.forms[f"{POLICY}/exceptions/new"]["csrf"]}


async def preview(world: World, kind: str, replaces: int, who: str = "owner", **fields: str) -> Any:
    """The answer to a change's form, before anything is saved."""
    form = await csrf(world, who) | {"kind": kind, "replaces": str(replaces)} | fields
    return await send(world, PREVIEW, form, who)


async def save(world: World, page: Page, who: str = "owner") -> Any:
    """The answer to the button of a preview that saves it."""
    return await send(world, POLICY, page.forms[POLICY], who)


async def change(world: World, kind: str, replaces: int, **fields: str) -> None:
    """Preview and save a change."""
    page = await shown(await preview(world, kind, replaces, **fields))
    answer = await save(world, page)
    assert answer.status_code == 303, await answer.get_data(as_text=True)
