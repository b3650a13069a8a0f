"""The API keys page: issue, rotate and revoke the keys that proxies and scripts send rows with."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from quart import url_for
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller
from service.access.roles import Capability
from service.core.header_names import API_KEY_HEADER
from service.orgs.api_keys import (
    NEVER,
    OVERLAP_DEFAULT,
    KeyRequest,
    KeyTerms,
    expires_soon,
    parse_overlap,
    request_api_key,
    revoke_api_key,
    rotate_api_key,
)
from service.pages.display_names import Person, find_names
from service.pages.people.form_actions import Change
from service.pages.people.page import PLACE, IssuedSecret, OrgPage
from service.pages.services import DashboardServices
from service.store.organisations import (
    find_replaced,
    get_api_key,
    list_ended_keys,
    list_live_keys,
    list_names,
)
from service.store.tables import ApiKey, Organisation, Project

ENDED_MAX: Final = 100
"""How many keys that were revoked or have expired the page shows."""

_EXPIRIES: Final = (("30d", "in 30 days"), ("90d", "in 90 days"), ("365d", "in a year"))
OVERLAPS: Final = (
    ("0", "no overlap: end the old key now"),
    ("1h", "1 hour"),
    ("24h", "24 hours"),
    ("7d", "7 days"),
    ("30d", "30 days"),
)

_USES: Final = (
    ("", "choose what it may do"),
    ("packages:install", "install (for CI)"),
    ("audit:ingest", "send rows (for a proxy of your own)"),
    ("packages:install audit:ingest", "install and send rows"),
    ("audit:r", "read the audit log"),
    ("audit:r audit:export", "read and export the audit log"),
    ("oidc:r", "read bindings"),
    ("policy:r", "read and check the install policy"),
    ("audit:r audit:export oidc:r policy:r", "read and export all"),
)
"""What a key can be issued for: its scopes, and their label."""

_TRIAL_ROW: Final = '[{"event": "install_allowed", "packageName": "countersign-trial"}]'


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key. `owner` is who created it, if that was recorded."""

    key: ApiKey
    owner: Person | None
    expires_soon: bool


async def load_keys_view(
    services: DashboardServices, session: AsyncSession, caller: Caller, org: Organisation
) -> dict[str, Any]:
    """A part of the live keys, and the latest that have ended, newest first."""
    now = services.clock()
    terms = KeyTerms.of(services.settings)
    load = partial(list_live_keys, session, org, now=now)
    part = await KEYS.part(load, lambda key: key.id)
    ended = await list_ended_keys(session, org, part.find, ENDED_MAX + 1, now)
    projects = await list_names(session, org, Project)
    return {
        "part": part,
        "live": await _rows(session, org, part.rows, now),
        "ended": await _rows(session, org, ended[:ENDED_MAX], now),
        "replaced": await find_replaced(session, org, [key.id for key in part.rows]),
        "has_more": len(ended) > ENDED_MAX,
        "expiries": _expiries(terms),
        "expiry_default": f"{terms.default.days}d",
        "overlaps": OVERLAPS,
        "overlap_default": OVERLAP_DEFAULT,
        "project_names": dict(projects),
        "uses": _USES,
        "choices": [("", "whole organisation"), *projects],
    }


async def _rows(
    session: AsyncSession, org: Organisation, keys: Sequence[ApiKey], now: datetime
) -> list[KeyRow]:
    names = await find_names(
        session, org.id, actors={key.created_by for key in keys if key.created_by is not None}
    )
    return [
        KeyRow(
            key,
            None if key.created_by is None else names.person(key.created_by),
            expires_soon(key, now),
        )
        for key in keys
    ]


async def issue_key(change: Change) -> IssuedSecret:
    """A new key, for a project or the whole organisation."""
    asked = KeyRequest(
        change.typed("name"),
        change.typed("scopes").split(),
        change.typed("project"),
        change.typed("expires"),
    )
    key, secret = await request_api_key(
        change.work,
        change.org,
        asked,
        KeyTerms.of(change.settings),
        change.by,
        change.caller.require,
    )
    return IssuedSecret(f"{key.name} ({key.id})", secret, _trial(change, key, secret))


def _expiries(terms: KeyTerms) -> list[tuple[str, str]]:
    """The expiries to choose from, the default among them."""
    most = terms.longest.days
    offered = [(value, words) for value, words in _EXPIRIES if int(value[:-1]) <= most]
    if terms.default.days not in {int(value[:-1]) for value, _ in offered}:
        offered.append((f"{terms.default.days}d", f"in {terms.default.days} days"))
    return [*offered, *([(NEVER, NEVER)] if terms.allows_never else [])]


async def rotate_key(change: Change, key_id: str) -> IssuedSecret:
    """A new key in place of a live one, which works on for the chosen overlap.

    The caller sees its secret, so they must be allowed to do what it may.
    """
    key = await get_api_key(change.work.session, change.org, key_id)
    overlap = parse_overlap(change.typed("overlap"))
    new, secret = await rotate_api_key(
        change.work,
        change.org,
        key,
        overlap,
        KeyTerms.of(change.settings),
        change.by,
        change.caller.require,
    )
    return IssuedSecret(f"{new.name} ({new.id})", secret, _trial(change, new, secret))


async def revoke_key(change: Change, key_id: str) -> str:
    """Revoke a key."""
    key = await get_api_key(change.work.session, change.org, key_id)
    await revoke_api_key(change.work, change.org, key, change.by)
    return "revoked"


def _trial(change: Change, key: ApiKey, secret: str) -> str:
    """A shell command that sends one row with the key, or shows what it may read."""
    if Capability.AUDIT_INGEST not in key.scopes:
        return (
            f"curl {change.public_url}{url_for('own_session.show')} -H '{API_KEY_HEADER}: {secret}'"
        )
    path = url_for("ingest.events", slug=change.org.slug)
    return (
        f"curl -X POST {change.public_url}{path}"
        f" -H '{API_KEY_HEADER}: {secret}' -H 'content-type: application/json' -d '{_TRIAL_ROW}'"
    )


KEYS: Final = OrgPage(
    endpoint="dashboard_people.keys_page",
    template="people/keys.html",
    load=load_keys_view,
    done={"revoked": "The key was revoked and no longer works."},
    place=PLACE,
)
