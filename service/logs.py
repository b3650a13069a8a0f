"""Structured logs: one JSON object a line on stderr, every line with its request's id."""

import logging
import sys

import structlog


def configure_logs(level: str) -> None:
    """Send this service's and its libraries' log lines through one JSON renderer."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # At info, alembic tells at every start which database it talks to, and httpx of every request
    # for an issuer's keys; what goes wrong with those has a line of our own. At debug, hpack tells
    # every header of a request over HTTP/2, tokens and keys and cookies, too.
    for talkative in ("alembic", "hpack", "httpx"):
        logging.getLogger(talkative).setLevel(max(logging.WARNING, root.level))
