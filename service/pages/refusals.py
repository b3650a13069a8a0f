"""Error pages: what browsers get where a script gets `{"error": text}`."""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from quart import Request, Response, redirect, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from service.access.refusals import CROSS_SITE, FOREIGN_FORM, SIGN_IN_LINK_REFUSED
from service.access.sign_in.flow import own_page
from service.core.errors import (
    DAMAGED,
    Forbidden,
    Internal,
    Invalid,
    NotFound,
    Refusal,
    Unauthenticated,
)
from service.core.request_context import request_id
from service.pages.navigation import page_context
from service.pages.services import DashboardServices
from service.web.dependencies import group_of
from service.web.templates import render_template

_FOR_PROGRAMS: Final = ("/api/", "/proxy/")
_PAGE_TYPE: Final = "text/html"
_ORG_PATH: Final = re.compile(r"/admin/ui/orgs/(?P<slug>[^/]+)")
_SAFE: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Advice:
    """The title and the next step that a page adds to an error's own text."""

    title: str
    next_step: str


_OUR_FAULT: Final = Advice(
    "Something went wrong",
    "Try again. If you sent a change, check first whether it was made. If the error persists, send"
    " the request id below to the operator of this service.",
)
_DAMAGED: Final = Advice(
    "Stored data cannot be read",
    "Trying again does not help. Send this message and the request id below to the operator of"
    " this service. What does not need this data works: choose other days.",
)
_ADVICE: Final = {
    Invalid.status: Advice("Invalid request", "Go back, correct it and send it again."),
    Unauthenticated.status: Advice(
        "You are not signed in",
        "Your request was not carried out. Go back and copy what you typed, then sign in and open"
        " the form again.",
    ),
    Forbidden.status: Advice(
        "Permission denied", "An owner of your organisation can give you access."
    ),
    NotFound.status: Advice("Not found", "The address may be wrong, or the page no longer exists."),
    409: Advice("Conflict", "Nothing was changed."),
    413: Advice("Request too large", "Nothing was changed. Send less data."),
    429: Advice("Too many requests", "Wait a moment, then try again."),
}

_ADVICE_OF_TEXT: Final = {
    SIGN_IN_LINK_REFUSED.text: Advice(
        "This sign-in link does not work",
        "A link works once, within ten minutes. Ask the owner or operator who sent it for a new"
        " one, or sign in another way.",
    ),
    FOREIGN_FORM.text: Advice(
        "This form is out of date",
        "Nothing was changed. Go back and copy what you typed, then open the form again.",
    ),
    CROSS_SITE.text: Advice(
        "Request from another site",
        "Nothing was changed. If you intended this, open the page here and repeat the action.",
    ),
}
"""Advice for errors that need other steps than most with their status."""


def wants_page(request: Request) -> bool:
    """True if a browser requests a page, outside the API and the install proxy.

    A script that accepts any type gets JSON, and so does pip, which accepts HTML as an index.
    """
    accepted = request.accept_mimetypes.values()
    return not request.path.startswith(_FOR_PROGRAMS) and _PAGE_TYPE in accepted


async def refusal_page(text: str, status: int) -> BaseResponse | Response:
    """`text` as a page with advice; a 401 to a safe request redirects to sign-in and back."""
    if status == Unauthenticated.status and request.method in _SAFE:
        return redirect(url_for("sign_in.ways", next=own_page(_address())), 303)
    page = await render_template(
        "refused.html",
        status=status,
        text=text,
        advice=_advice(text, status),
        request_id=request_id(),
        is_signed_out=status == Unauthenticated.status,
        **await _frame(status),
    )
    return Response(page, status=status, content_type=f"{_PAGE_TYPE}; charset=utf-8")


async def _frame(status: int) -> dict[str, Any]:
    """The template variables of the organisation's pages, if the caller belongs to one.

    Empty for our own faults, and for callers without a session, who have no navigation.
    """
    path = _ORG_PATH.match(request.path)
    if path is None or status >= Internal.status or status == Unauthenticated.status:
        return {}
    services = group_of(DashboardServices)
    try:
        caller, org = await services.access.authorize_member(unquote(path["slug"]))
    except Refusal:
        return {}
    return page_context(services, caller, org)


def _advice(text: str, status: int) -> Advice:
    if text.startswith(DAMAGED):
        return _DAMAGED
    fallback = _OUR_FAULT if status >= Internal.status else _ADVICE[Invalid.status]
    return _ADVICE_OF_TEXT.get(text) or _ADVICE.get(status, fallback)


def _address() -> str:
    """Path and query of the current request, as they were sent."""
    query = request.query_string.decode("ascii", "replace")
    return f"{request.path}?{query}" if query else request.path
