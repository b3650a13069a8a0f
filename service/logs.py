"""Structured logs: one JSON object a line on stderr, every line with its request's id.

Everything but ASCII is escaped, so that no text from outside can end a line or steer a terminal.
"""

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

# Made once: `json.dumps` would make one for each line.
_encoder: Final = json.JSONEncoder(default=repr)


def _as_json(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    """The last step of every line."""
    return _encoder.encode(event)


class _Lines:
    """Where this service's own lines go: straight to standard error, whatever that is by then.

    The standard library's handlers would take several times as long as everything else about a
    line, and each request has one.
    """

    def __init__(self, name: str = "service") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        """Write one line, in one piece."""
        sys.stderr.write(f"{line}\n")

    debug = info = warning = error = critical = msg


def configure_logs(level: str) -> None:
    """Make JSON of this service's and its libraries' log lines from `level` on."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, _as_json],
        logger_factory=_Lines,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _as_json,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    # At info, alembic tells at every start which database it talks to, and httpx of every request
    # for an issuer's keys; what goes wrong with those has a line of our own. At debug, hpack tells
    # every header of a request over HTTP/2, tokens and keys and cookies, and aiosqlite every value.
    for talkative in ("aiosqlite", "alembic", "hpack", "httpx"):
        logging.getLogger(talkative).setLevel(max(logging.WARNING, threshold))
