"""Strict parsing of requests: anything unknown is rejected, never guessed."""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from quart import Request
from werkzeug.exceptions import MethodNotAllowed, RequestTimeout

from analytics.model.strict_json import DuplicateKey, unique_members
from service.core.errors import BodyTooLarge, Invalid, UnsupportedMediaType, file_fault
from service.core.threads import run_uncancellable
from service.web.bodies import read_body
from service.web.refusals import (
    DUPLICATE_MEMBER,
    NOT_A_NUMBER,
    NOT_AN_OBJECT,
    UNKNOWN_FIELD,
    UNKNOWN_PARAMETER,
    WRONG_MEDIA_TYPE,
)

_INTEGER_DIGITS_MAX: Final = 64
_BODY_BYTES_MAX: Final = 64 * 1024
NO_LIMIT: Final = sys.maxsize
_ECHO_MAX: Final = 64
_FLAGS: Final = {None: None, "true": True, "false": False}


class HugeInteger(float):
    """A JSON integer too long to be worth converting. No field accepts one."""


def refuse_head(request: Request) -> None:
    """Raise MethodNotAllowed for HEAD, which the framework accepts wherever it accepts GET.

    For responses that write an audit row or do not end, when the client reads no body.
    """
    if request.method == "HEAD":
        raise MethodNotAllowed(valid_methods=["GET"])


async def json_object(request: Request, bytes_max: int = 0) -> dict[str, Any]:
    """The request's body, which must be one JSON object (RFC 8259, UTF-8).

    It has as many bytes as any body may have, or `bytes_max` if that is more. Raises NOT_AN_OBJECT,
    or one of BODY_REFUSALS.
    """
    common = request.max_content_length or _BODY_BYTES_MAX
    return parse_object(await json_bytes(request, max(bytes_max, common)))


async def json_bytes(request: Request, bytes_max: int) -> bytes:
    """The request's body, declared as JSON. Raises UnsupportedMediaType, and as `read_body`."""
    raw = await read_body(request, body_limit(request, bytes_max))
    if raw and request.mimetype != "application/json":
        raise UnsupportedMediaType
    return raw


@asynccontextmanager
async def spooled(
    request: Request, media: str, bytes_max: int, folder: Path
) -> AsyncIterator[BinaryIO]:
    """The request's body, of this media type, in a file without a name: it ends with the process.

    The file is in `folder`: the system's may be memory. Raises WRONG_MEDIA_TYPE, BodyTooLarge,
    RequestTimeout if the client stops sending, StoreUnavailable if the file cannot be written.
    """
    if request.mimetype != media:
        raise WRONG_MEDIA_TYPE(value=media)
    limit = body_limit(request, bytes_max)
    with ExitStack() as opened:
        try:
            file = opened.enter_context(tempfile.TemporaryFile(dir=folder))
            size = 0
            while (piece := await _next_piece(request)) is not None:
                size += len(piece)
                if size > limit:  # without a Content-Length this is not known before
                    raise BodyTooLarge
                await run_uncancellable(file.write, piece)
            await run_uncancellable(file.flush)
        except OSError as error:
            raise file_fault(error) from error
        yield file


async def _next_piece(request: Request) -> bytes | None:
    """The next bytes of the body, or None at its end. Raises RequestTimeout."""
    try:
        return await asyncio.wait_for(anext(request.body, None), request.body_timeout)
    except TimeoutError as error:  # which is an OSError
        raise RequestTimeout from error


def body_limit(request: Request, bytes_max: int) -> int:
    """The limit of a body: `bytes_max`, and none for the operator's requests in this process."""
    return NO_LIMIT if request.max_content_length == NO_LIMIT else bytes_max


def parse_object(raw: bytes) -> dict[str, Any]:
    """The one JSON object in `raw`. Raises NOT_AN_OBJECT, DUPLICATE_MEMBER, NOT_A_NUMBER."""
    try:
        value = json.loads(
            raw.decode(),
            object_pairs_hook=unique_members,
            parse_int=_integer,
            parse_constant=_refuse_constant,
        )
    except DuplicateKey as error:  # readers of JSON differ in which of the two they choose
        raise DUPLICATE_MEMBER(value=error.key[:_ECHO_MAX]) from error
    except (ValueError, RecursionError) as error:
        raise NOT_AN_OBJECT from error
    if not isinstance(value, dict):
        raise NOT_AN_OBJECT
    return value


def check_members(body: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise Invalid, which names it, for the first member of `body` that is not in `known`."""
    for member in body:
        if member not in known:
            name = member[:_ECHO_MAX]
            raise UNKNOWN_FIELD(value=name, field=name)


def query_parameters(request: Request, allowed: Collection[str]) -> dict[str, list[str]]:
    """The query string's parameters, name to values. Raises UNKNOWN_PARAMETER."""
    unknown = [name for name in request.args if name not in allowed]
    if unknown:
        raise UNKNOWN_PARAMETER(value=", ".join(unknown))
    return all_parameters(request)


def all_parameters(request: Request) -> dict[str, list[str]]:
    """The query string's parameters, name to values, for a caller that checks the names."""
    return {name: request.args.getlist(name) for name in request.args}


def parse_limit(text: str | None, default: int, limit_max: int) -> int:
    """The largest number of items to list. Raises Invalid if out of bounds; never clamps."""
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not 1 <= int(text) <= limit_max:
        raise Invalid(f"limit must be an integer from 1 to {limit_max}", field="limit")
    return int(text)


def parse_flag(name: str, text: str | None) -> bool | None:
    """A parameter's `true` or `false`; None if it is not given. Raises Invalid."""
    if text not in _FLAGS:
        raise Invalid(f"{name} must be true or false", field=name)
    return _FLAGS[text]


def _integer(digits: str) -> int | HugeInteger:
    return int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else HugeInteger("inf")


def _refuse_constant(name: str) -> NoReturn:
    raise NOT_A_NUMBER(value=name)
