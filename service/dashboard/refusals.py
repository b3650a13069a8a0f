"""Refusals as pages: what a person reads where a script gets `{"error": text}`."""

from dataclasses import dataclass
from typing import Final

from quart import Request, Response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from service.errors import (
    CrossSite,
    Forbidden,
    ForeignForm,
    Internal,
    Invalid,
    NotFound,
    Unauthenticated,
)
from service.sign_in.flow import own_page
from service.web.context import request_id

_API: Final = "/api/"
_PAGE_TYPE: Final = "text/html"
_SAFE: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Advice:
    """What stands above and below a refusal's own text."""

    title: str
    next_step: str


_OUR_FAULT: Final = Advice(
    "Something is wrong here",
    "Nothing was changed. Try again; if it stays like this, tell whoever runs this service,"
    " with the request id below.",
)
_ADVICE: Final = {
    Invalid.status: Advice("This cannot be done", "Go back, mend it, and send it again."),
    Unauthenticated.status: Advice(
        "You are not signed in",
        "What you sent was not done. Go back and copy what you typed; then sign in and open the"
        " form again.",
    ),
    Forbidden.status: Advice(
        "You may not do this", "An owner of your organisation can give you the right to."
    ),
    NotFound.status: Advice("Nothing is here", "The address may be wrong, or what it named gone."),
    409: Advice("Something is in the way", "Nothing was changed."),
    413: Advice("Too much at once", "Nothing was changed. Send less."),
    429: Advice("Too much at once", "Wait a little, then try again."),
}

_ADVICE_OF_TEXT: Final = {
    ForeignForm.text: Advice(
        "This form is out of date",
        "Nothing was done. Go back and copy what you typed; then open the form again.",
    ),
    CrossSite.text: Advice(
        "This came from another site",
        "Nothing was done. If you mean it, open the page here and do it yourself.",
    ),
}
"""What no owner can give anybody the right to."""


def wants_page(request: Request) -> bool:
    """True if a browser asks for something to look at, outside the API.

    A script that accepts anything gets what scripts can read.
    """
    accepted = request.accept_mimetypes.values()
    return not request.path.startswith(_API) and _PAGE_TYPE in accepted


async def refusal_page(text: str, status: int) -> BaseResponse | Response:
    """`text` as a page that says what to do. Who only has to sign in is led there, and back."""
    if status == Unauthenticated.status and request.method in _SAFE:
        return redirect(url_for("sign_in.ways", next=own_page(_address())), 303)
    page = await render_template(
        "refused.html",
        status=status,
        text=text,
        advice=_advice(text, status),
        request_id=request_id(),
        is_signed_out=status == Unauthenticated.status,
    )
    return Response(page, status=status, content_type=f"{_PAGE_TYPE}; charset=utf-8")


def _advice(text: str, status: int) -> Advice:
    fallback = _OUR_FAULT if status >= Internal.status else _ADVICE[Invalid.status]
    return _ADVICE_OF_TEXT.get(text) or _ADVICE.get(status, fallback)


def _address() -> str:
    """Path and query of the current request, as they were sent."""
    query = request.query_string.decode("ascii", "replace")
    return f"{request.path}?{query}" if query else request.path
