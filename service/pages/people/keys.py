"""The API keys page: issue, rotate and revoke the keys that proxies and scripts send rows with."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from quart import Blueprint, url_for
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.roles import Capability
from service.core.header_names import API_KEY_HEADER
from service.orgs.api_keys import NEVER, OVERLAP_DEFAULT, KeyTerms, expires_soon
from service.orgs.key_api import IssuedApiKey, NewApiKey, issue, revoke, rotate
from service.packages.install_tokens.machine_tokens import list_machine_tokens
from service.packages.install_tokens.machine_tokens import revoke as revoke_machine_token
from service.pages.display_names import find_names
from service.pages.page import Form, IssuedSecret, Page, PageCall, View, list_part
from service.store.organisations import (
    find_replaced,
    list_ended_keys,
    list_live_keys,
    list_names,
)
from service.store.tables import ApiKey, Organisation, Project
from service.web.models import form_values

blueprint = Blueprint("dashboard_keys", __name__, url_prefix="/admin/ui/orgs/<slug>/keys")

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


@Page(
    blueprint,
    "",
    "people/keys.html",
    needs=Capability.ORG_ADMIN,
    done={
        "revoked": "The key was revoked and no longer works.",
        "machine-revoked": "The machine token was revoked and no longer works.",
    },
    is_list=True,
)
async def keys_page(call: PageCall) -> View:
    """A part of the live keys, and the latest that have ended, newest first."""
    org, now = call.org, call.services.clock()
    terms = KeyTerms(call.services.settings.api_key_days_max)
    async with call.read() as session:
        part = await list_part(partial(list_live_keys, session, org, now=now), lambda key: key.id)
        ended = await list_ended_keys(session, org, part.find, ENDED_MAX + 1, now)
        projects = await list_names(session, org, Project)
        live_rows = await _rows(session, org, part.rows, now)
        ended_rows = await _rows(session, org, ended[:ENDED_MAX], now)
        replaced = await find_replaced(session, org, [key.id for key in part.rows])
        machines = await list_machine_tokens(session, org, None, now)
    return {
        "part": part,
        "live": live_rows,
        "ended": ended_rows,
        "replaced": replaced,
        "has_more": len(ended) > ENDED_MAX,
        "machines": machines,
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
) -> list[View]:
    """The keys, each with who created it, if that was recorded."""
    names = await find_names(
        session, org.id, actors={key.created_by for key in keys if key.created_by is not None}
    )
    return [
        {
            "key": key,
            "owner": None if key.created_by is None else names.person(key.created_by),
            "expires_soon": expires_soon(key, now),
        }
        for key in keys
    ]


def _expiries(terms: KeyTerms) -> list[tuple[str, str]]:
    """The expiries to choose from, the default among them."""
    most = terms.longest.days
    offered = [(value, words) for value, words in _EXPIRIES if int(value[:-1]) <= most]
    if terms.default.days not in {int(value[:-1]) for value, _ in offered}:
        offered.append((f"{terms.default.days}d", f"in {terms.default.days} days"))
    return [*offered, *([(NEVER, NEVER)] if terms.allows_never else [])]


def _asked(form: Form) -> dict[str, Any]:
    """The key that the form asks for; one field has all of its scopes."""
    return form_values(NewApiKey, form) | {"scopes": form.get("scopes", "").split()}


def _overlap(form: Form) -> dict[str, Any]:
    """The overlap that the form asks for: an empty one is not the default."""
    return {"overlap": form.get("overlap", "").strip()}


def _issued(call: PageCall, key: IssuedApiKey) -> IssuedSecret:
    return IssuedSecret(f"{key.name} ({key.id})", key.secret, _trial(call, key))


def _trial(call: PageCall, key: IssuedApiKey) -> str:
    """A shell command that sends one row with the key, or shows what it may read."""
    service, credential = call.services.settings.public_url, f"-H '{API_KEY_HEADER}: {key.secret}'"
    if Capability.AUDIT_INGEST not in key.scopes:
        return f"curl {service}{url_for('own_session.show')} {credential}"
    path = url_for("ingest.events", slug=call.org.slug)
    return (
        f"curl -X POST {service}{path}"
        f" {credential} -H 'content-type: application/json' -d '{_TRIAL_ROW}'"
    )


keys_page.secret_form("", "issue_key", issue, _issued, field="project", fields=_asked)
keys_page.secret_form(
    "/<key_id>/rotate", "rotate_key", rotate, _issued, field="overlap", fields=_overlap
)
keys_page.form("/<key_id>/revoke", "revoke_key", revoke, "revoked")
keys_page.form(
    "/machines/<machine_token_id>/revoke",
    "revoke_machine_token",
    revoke_machine_token,
    "machine-revoked",
)
