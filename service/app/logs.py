"""Structured logs: one JSON object per line on stderr, each with its request's id.

Non-ASCII characters are escaped: untrusted text can neither end a line nor control a terminal.
"""

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

# Created once: `json.dumps` would create an encoder for each line.
_encoder: Final = json.JSONEncoder(default=repr)


def _as_json(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    """The last processor: render the event as JSON."""
    return _encoder.encode(event)


class _Lines:
    """Writes this service's own log lines directly to the current `sys.stderr`.

    The standard library's handlers would take several times as long as the rest of logging a line,
    and every request logs one.
    """

    def __init__(self, name: str = "service") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        """Write one line, in one piece."""
        sys.stderr.write(f"{line}\n")

    debug = info = warning = error = critical = msg


def configure_logs(level: str) -> None:
    """Log this service and its libraries as JSON lines, from `level` on."""
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
    # At info, alembic logs its database at every start and httpx2 every request for an issuer's
    # keys; this service logs failures of both itself. At debug, aiosqlite logs every value.
    for verbose in ("aiosqlite", "alembic", "httpx2"):
        logging.getLogger(verbose).setLevel(max(logging.WARNING, threshold))
