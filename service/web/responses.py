"""JSON responses."""

import json
from typing import Any

import msgspec
from quart import Response

JSON_TYPE = "application/json"


def json_answer(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - any JSON
    """`value` as the body of a JSON response."""
    return Response(msgspec.json.encode(value), status=status, content_type=JSON_TYPE)


def encoded(value: Any) -> msgspec.Raw:  # noqa: ANN401 - any JSON
    """`value` as part of a JSON response, encoded now: long answers are encoded in parts."""
    return msgspec.Raw(msgspec.json.encode(value))


def error_answer(text: str, status: int) -> Response:
    """An error response, `{"error": text}`: the same shape for every error."""
    body = json.dumps({"error": text}, ensure_ascii=False, separators=(",", ":"))
    # `text` may repeat a lone surrogate from a client: UTF-8 cannot encode it, JSON can escape it.
    return Response(body.encode(errors="backslashreplace"), status=status, content_type=JSON_TYPE)
