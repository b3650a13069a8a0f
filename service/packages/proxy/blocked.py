"""The proxy's answers apart from registries: why an install was refused, and to unknown paths."""

import json
import re
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import quote, unquote_plus

from quart import Blueprint, Response, redirect, request
from quart.typing import ResponseReturnValue

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit
from analytics.model.errors import StoreFault
from analytics.model.events import Event
from analytics.model.schema import parse_audit_id
from service.access.callers import is_allowed
from service.access.roles import Capability
from service.audit.query_service import find_entry
from service.audit.refusals import AuditRowNotFound
from service.audit.services import AuditServices
from service.audit.tenant_log import open_log
from service.core.errors import MethodNotAllowed, NotFound, Refusal
from service.core.text_rules import visible
from service.orgs.members import list_owners
from service.packages.ecosystem import InvalidPackageName
from service.packages.names import canonical_name
from service.packages.policy.model import BLOCKING_REASONS, PolicyDecision
from service.packages.proxy.services import ProxyServices
from service.packages.refusals import PUBLISHING_NOT_SUPPORTED
from service.store.tables import Organisation
from service.web.dependencies import group_of
from service.web.responses import error_answer
from service.web.templates import render_template

SEGMENT_CHARS_MAX: Final = 800
"""Of the reason in the address; characters that need escapes take up to twelve."""

_UNESCAPED: Final = ",:;!()@='"
"""What a path may contain besides letters, digits and `-._~` (RFC 3986, 3.3) and is readable."""

_ESCAPES: Final = {" ": "+", "+": "%252B", "/": "%252F", "%": "%2525"}
"""A `+` is a space, as in queries: `%20` would make the reason unreadable in a log.

What would have a meaning of its own is escaped twice: servers resolve one escape of a path. With a
single one, nginx takes the slashes of `../../..` for some of the path, and answers 400.
"""

_ELLIPSIS: Final = "..."

OWNERS_MAX: Final = 3

_COMPARED_CHARS: Final = 60
"""Of a rule's id: the reason in an address may be cut, but not before that."""

_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,255}")

_STATUS: Final = 403
"""Not 451: pnpm repeats that for minutes."""

_READING: Final = ("GET", "HEAD")

_WRITING: Final = ("DELETE", "PATCH", "POST", "PUT")


def blocked_path(
    slug: str, audit_id: str, name: str, version: str, decision: PolicyDecision
) -> str:
    """The path that explains one refusal. It has the reason, for readers of a build log."""
    parts = [quote(part, safe="@") for part in (audit_id, name, version)]
    return f"/proxy/{slug}/blocked/" + "/".join([*parts, segment_of(decision.reason)])


def segment_of(reason: str) -> str:
    """A reason as one segment of a URL, which `reason_in` reads. Long ones are cut."""
    segment = ""
    for character in visible(reason):
        escaped = _ESCAPES.get(character) or quote(character, safe=_UNESCAPED)
        if len(segment) + len(escaped) > SEGMENT_CHARS_MAX - len(_ELLIPSIS):
            return f"{segment}{_ELLIPSIS}"
        segment += escaped
    return segment


def reason_in(segment: str) -> str | None:
    """The reason in an unescaped segment; None if it is not one that `segment_of` writes."""
    reason = unquote_plus(segment)
    is_ours = event_of(reason) is not None and len(reason) <= SEGMENT_CHARS_MAX
    return reason if is_ours and reason == visible(reason) else None


def event_of(reason: str) -> Event | None:
    """The event of the row that a refusal with this reason leaves; None if no decision gives it.

    Anyone can make up an address: other texts must not be shown.
    """
    events = (event for start, event in BLOCKING_REASONS.items() if reason.startswith(start))
    return next(events, None)


def blocked_redirect(url: str) -> Response:
    """A redirect to `url`: package managers print the address, but hide the body of an error."""
    return _uncached(cast("Response", redirect(url, 302)))


blueprint = Blueprint("proxy_blocked", __name__)


@blueprint.get("/proxy/<slug>/blocked/<audit_id>/<path:rest>")
async def blocked(slug: str, audit_id: str, rest: str) -> ResponseReturnValue:
    """Say which install was refused and where its audit row is.

    No credentials are needed, because package managers do not send any here. So the page shows only
    what its address says. Members who are signed in see more, as far as their role allows.
    """
    services = group_of(AuditServices)
    name, version, reason = _parts(rest)
    if parse_audit_id(audit_id) is None:
        raise NotFound
    text = f"{name} {version} is blocked by the install policy of {slug}: {reason}"
    if "text/html" not in request.accept_mimetypes.values():
        return _uncached(error_answer(f"{text} (audit row {audit_id})", _STATUS))
    page = await render_template(
        "blocked.html",
        slug=slug,
        audit_id=audit_id,
        name=name,
        version=version,
        reason=reason,
        event=event_of(reason),
        member=await load_member_view(services, slug, audit_id, name, version, reason),
    )
    return _uncached(Response(page, status=_STATUS, content_type="text/html; charset=utf-8"))


def _parts(rest: str) -> tuple[str, str, str]:
    """The package's name, its version, and the reason in words. Raises NotFound."""
    parts = rest.split("/")
    at = 2 if rest.startswith("@") else 1
    name, version, *_ = ["/".join(parts[:at]), *parts[at:], ""]
    reason = reason_in(parts[at + 1]) if len(parts) == at + 2 else None
    # Anyone can make up such an address: only names, versions and reasons get onto our page.
    if not _is_name(name) or not _VERSION.fullmatch(version) or reason is None:
        raise NotFound
    return name, version, reason


def _is_name(text: str) -> bool:
    for ecosystem in Ecosystem:
        with suppress(InvalidPackageName):
            canonical_name(ecosystem, text)
            return True
    return False


def _uncached(answer: Response) -> Response:
    answer.headers["cache-control"] = "private, no-store"
    return answer


async def load_member_view(
    services: AuditServices, slug: str, audit_id: str, name: str, version: str, reason: str
) -> dict[str, Any] | None:
    """What a member sees: who could allow the install and, if they may read audit rows, the row.

    None for anyone outside the organisation. Without a `row`, `is_missing` tells whether no row has
    this id.

    Never refuses a caller: the page is public, and looks the same to all who are not members.
    """
    try:
        caller, org = await services.access.authorize_member(slug)
        async with services.store.read() as session:
            owners = [owner.email for owner in await list_owners(session, org, OWNERS_MAX)]
    except Refusal:
        return None
    view: dict[str, Any] = {
        "owners": owners,
        "may_see_policy": is_allowed(caller.require, Capability.POLICY_READ, org),
        "may_read_rows": is_allowed(caller.require, Capability.AUDIT_READ, org),
        "row": None,
        "is_missing": False,
    }
    if view["may_read_rows"]:
        try:
            view["row"] = await _find_row(services, org, audit_id, name, version, reason)
        except AuditRowNotFound:
            view["is_missing"] = True
        except (Refusal, StoreFault):
            pass  # the page is shown without the row
    return view


async def _find_row(
    services: AuditServices,
    org: Organisation,
    audit_id: str,
    name: str,
    version: str,
    reason: str,
) -> dict[str, Any]:
    """The parts of the install's row that the page shows.

    `matches` is True if the row is a block of the package and version that the address names, for
    the reason that it gives.
    """
    log = await open_log(services.store, services.lake, org, services.clock())
    entry = json.loads(await find_entry(log, audit_id))
    envelope = _reason(entry["decision_reason"])
    is_block = _is_reason_of(entry["event"], envelope, reason)
    shown = ("event", "ecosystem", "version", "created_at", "subject")
    return {
        **{member: entry[member] for member in shown},
        "package": entry["packageName"],
        "reason": envelope,
        "matches": is_block and (entry["packageName"], entry["version"]) == (name, version),
    }


def _is_reason_of(event: str, envelope: dict[str, Any], reason: str) -> bool:
    """False if a reason, which anyone can put into an address, names another rule than the row."""
    if event != event_of(reason):
        return False
    rule_id = visible(str(envelope.get("rule_id")))[:_COMPARED_CHARS]
    return event != BlocklistHit.event or rule_id in reason


def _reason(text: str | None) -> dict[str, Any]:
    """The keys of a decision's envelope; empty for rows of imports that have none."""
    try:
        reason = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return reason if isinstance(reason, dict) else {}


@blueprint.route("/proxy/<slug>/", methods=[*_READING, "OPTIONS", *_WRITING])
@blueprint.route("/proxy/<slug>/<path:rest>", methods=[*_READING, "OPTIONS", *_WRITING])
async def fallback(slug: str, rest: str = "") -> ResponseReturnValue:
    """401 without credentials; else 404, or 405 for a method that does not read.

    Package managers learn from the 401 of any path how to send credentials.
    """
    services = group_of(ProxyServices)
    await services.authorize(request, slug)
    if request.method in _READING:
        raise NotFound
    is_write = request.method in _WRITING and rest.partition("/")[0] in set(Ecosystem)
    return _not_allowed(PUBLISHING_NOT_SUPPORTED if is_write else MethodNotAllowed)


def _not_allowed(refusal: type[MethodNotAllowed]) -> Response:
    answer = error_answer(refusal.text, refusal.status)
    answer.headers["allow"] = ", ".join(_READING)  # RFC 9110, 15.5.6
    return answer
