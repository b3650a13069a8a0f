"""Every error as a response: `{"error": text}` for scripts, a page for browsers."""

from http import HTTPStatus
from typing import Final

import structlog
from quart import Quart, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.wrappers import Response as BaseResponse

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.filters import InvalidQuery
from analytics.storage.suspects import segments_in
from service.core.errors import (
    BodyTooLarge,
    Internal,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Refusal,
    SegmentDamaged,
    StorageDamaged,
    StoreUnavailable,
    Unauthenticated,
)
from service.pages.refusals import refusal_page, wants_page
from service.web.responses import error_answer

Answer = BaseResponse | Response

_log = structlog.get_logger(__name__)
DENIED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""The statuses of requests without the rights that they need; their log lines say why."""

_OF_HTTP: dict[int, type[Refusal]] = {
    refusal.status: refusal for refusal in (NotFound, MethodNotAllowed, BodyTooLarge)
}


def answer_errors(app: Quart) -> None:
    """Register handlers that turn every error raised in `app` into a response."""
    app.register_error_handler(Refusal, _refused)
    app.register_error_handler(InvalidQuery, _invalid_query)
    app.register_error_handler(StoreFault, _store_fault)
    app.register_error_handler(StoreUnreachable, _store_unreachable)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(OSError, _os_error)
    app.register_error_handler(Exception, _internal)


async def _answer(text: str, status: int) -> Answer:
    if wants_page(request):
        return await refusal_page(text, status)
    return error_answer(text, status)


async def _answer_as(refusal: Refusal | type[Refusal]) -> Answer:
    answer = await _answer(refusal.text, refusal.status)
    if refusal.retry_after_s is not None:
        answer.headers["retry-after"] = str(refusal.retry_after_s)
    return answer


async def _refused(refusal: Refusal) -> Answer:
    if isinstance(refusal, StoreUnavailable):
        _log.error("store_unavailable", reason=refusal.reason)
    if refusal.status in DENIED:
        # Only these: the texts of other refusals repeat what a client sent, which may be a secret.
        structlog.contextvars.bind_contextvars(reason=refusal.text)
    answer = await _answer_as(refusal)
    if isinstance(refusal, Unauthenticated):
        answer.headers["www-authenticate"] = refusal.challenge
    return answer


async def _invalid_query(error: InvalidQuery) -> Answer:
    return await _answer(str(error), Invalid.status)


async def _store_fault(error: StoreFault) -> Answer:
    _log.error("store_fault", reason=str(error))
    segments = segments_in(error)
    return await _answer_as(SegmentDamaged(value=segments[0]) if segments else StorageDamaged)


async def _store_unreachable(error: StoreUnreachable) -> Answer:
    _log.error("store_unreachable", reason=str(error))
    return await _answer_as(StoreUnavailable)


async def _http_error(error: HTTPException) -> Answer:
    refusal = _OF_HTTP.get(error.code or 500)
    text = refusal.text if refusal else (error.name or Internal.text).lower()
    answer = await _answer(text, error.code or 500)
    if isinstance(error, WrongMethod) and error.valid_methods:
        answer.headers["allow"] = ", ".join(sorted(error.valid_methods))
    return answer


async def _os_error(error: OSError) -> Answer:
    if request.endpoint == "static":  # the file system rejects the name, so there is no such file
        return error_answer(NotFound.text, NotFound.status)
    return await _internal(error)


async def _internal(error: Exception) -> Answer:
    _log.exception("internal_error", exc_info=error)
    return await _answer(Internal.text, Internal.status)
