"""The address that explains a refused install: package managers print it."""

import re
from typing import Final
from urllib.parse import quote, unquote_plus

from quart import Response, redirect
from quart.typing import ResponseReturnValue

from analytics.model.events import Event
from service.core.text_rules import visible
from service.packages.policy.model import BLOCKING_REASONS, Decision

SEGMENT_CHARS_MAX: Final = 800
"""Of the reason in the address; characters that need escapes take up to twelve."""

WORDS_CHARS_MAX: Final = 200
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._]+")
_UNESCAPED: Final = ",:;!()@='"
"""What a path may contain besides letters, digits and `-._~` (RFC 3986, 3.3) and is readable."""

_ESCAPES: Final = {" ": "+", "+": "%252B", "/": "%252F", "%": "%2525"}
"""A `+` is a space, as in queries: `%20` would make the reason unreadable in a log.

What would have a meaning of its own is escaped twice: servers resolve one escape of a path. With a
single one, nginx takes the slashes of `../../..` for some of the path, and answers 400.
"""

_ELLIPSIS: Final = "..."


def blocked_path(slug: str, audit_id: str, name: str, version: str, decision: Decision) -> str:
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


def words_of(reason: str) -> str:
    """A reason as a segment of a URL that needs no escapes: `too-new`."""
    return _NOT_PLAIN.sub("-", reason)[:WORDS_CHARS_MAX]


def blocked_redirect(url: str) -> Response:
    """A redirect to `url`: package managers print the address, but hide the body of an error."""
    answer: ResponseReturnValue = redirect(url, 302)
    answer.headers["cache-control"] = "private, no-store"  # type: ignore[union-attr]
    return answer  # type: ignore[return-value]
