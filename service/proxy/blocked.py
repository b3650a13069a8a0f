"""The address that explains a refused install: package managers print it."""

import re
from typing import Final
from urllib.parse import quote

from quart import Response, redirect
from quart.typing import ResponseReturnValue

from service.policy.model import Decision

REASON_CHARS_MAX: Final = 120
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._]+")


def blocked_path(slug: str, audit_id: str, name: str, version: str, decision: Decision) -> str:
    """The path that explains one refusal. It spells out the reason, for readers of a build log."""
    reason = f"denied by {decision.rule_id}" if decision.rule_id else "too new"
    parts = (audit_id, name, version, words_of(reason))
    return f"/proxy/{slug}/blocked/" + "/".join(quote(part, safe="@") for part in parts)


def words_of(reason: str) -> str:
    """A reason as a segment of a URL that needs no escapes: `too-new`."""
    return _NOT_PLAIN.sub("-", reason)[:REASON_CHARS_MAX]


def blocked_redirect(url: str) -> Response:
    """A redirect to `url`: package managers print the address, but hide the body of an error."""
    answer: ResponseReturnValue = redirect(url, 302)
    answer.headers["cache-control"] = "private, no-store"  # type: ignore[union-attr]
    return answer  # type: ignore[return-value]
