"""Why an install was refused: the page whose address package managers print."""

import re
from contextlib import suppress
from typing import Final

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from analytics.model.schema import parse_audit_id
from service.audit.services import AuditServices
from service.core.errors import NotFound
from service.packages.ecosystems import Ecosystem
from service.packages.names import InvalidPackageName, canonical_name
from service.packages.proxy.blocked import event_of, reason_in
from service.packages.proxy.blocked_page import load_member_view
from service.web.dependencies import receives
from service.web.responses import error_answer
from service.web.templates import render_template

_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,255}")
_STATUS: Final = 403
"""Not 451: pnpm repeats that for minutes."""

blueprint = Blueprint("proxy_blocked", __name__)


@blueprint.get("/proxy/<slug>/blocked/<audit_id>/<path:rest>")
@receives(AuditServices)
async def blocked(
    services: AuditServices, slug: str, audit_id: str, rest: str
) -> ResponseReturnValue:
    """Say which install was refused and where its audit row is.

    No credentials are needed, because package managers do not send any here. So the page shows only
    what its address says. Members who are signed in see more, as far as their role allows.
    """
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
