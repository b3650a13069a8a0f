"""Writing answers."""

import json
from typing import Any

import msgspec
from quart import Response

JSON_TYPE = "application/json"


def json_answer(value: Any, status: int = 200) -> Response:  # noqa: ANN401 - any JSON
    """`value` as the body of a JSON response."""
    return Response(msgspec.json.encode(value), status=status, content_type=JSON_TYPE)


def error_answer(text: str, status: int) -> Response:
    """The one shape every error has.

    Escaped to ASCII, because `text` may repeat what a client sent, lone surrogates included.
    """
    return Response(json.dumps({"error": text}), status=status, content_type=JSON_TYPE)
