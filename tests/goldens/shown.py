"""Requests and their answers as text, so that each difference is a line of `diff`."""

import json
from collections.abc import Mapping

from tests.goldens.world import Answer
from tests.processes.command_line import Ran

_ANSWERS_CHARS_MAX = 200_000
_VARYING = frozenset({"content-length", "date", "x-request-id"})


def shown_answer(answer: Answer, usual: Mapping[str, str]) -> str:
    """Status, the headers that are not `usual`, and the body."""
    headers = sorted((name.lower(), value) for name, value in answer.headers)
    lines = [str(answer.status)]
    lines += [
        f"{name}: {value}"
        for name, value in headers
        if name not in _VARYING and usual.get(name) != value
    ]
    return "\n".join([*lines, "", shown_body(answer.body), ""])


def shown_body(body: bytes) -> str:
    """JSON with a line for each member, if it was compact; other text as it is."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"({len(body)} bytes that are not text)"
    return shown_json(text)[:_ANSWERS_CHARS_MAX]


def shown_json(text: str) -> str:
    """`text` with a line for each member if it is compact JSON, members in their order."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return json.dumps(value, indent=2, ensure_ascii=False) if text == compact else text


def shown_command(words: tuple[str, ...], ran: Ran) -> str:
    """How a command ended, and what it wrote."""
    parts = [f"exit code {ran.code}\n"]
    for name, text in (("standard output", ran.out), ("standard error", ran.err)):
        if text:
            parts.append(f"{name}:\n{text[:_ANSWERS_CHARS_MAX]}")
    return "$ countersign " + " ".join(words) + "\n" + "".join(parts)
