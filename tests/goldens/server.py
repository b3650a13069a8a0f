"""Serves one installation in a process of its own: `python -m tests.goldens.server PORT`."""

import asyncio
import logging
import sys

import structlog

from service.app.application import create_app
from service.core.secrets import with_secrets
from service.core.settings import load_settings
from tests.goldens.fixed import CLOCK, make_repeatable


async def _serve(port: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    settings = with_secrets(load_settings())
    await create_app(settings, CLOCK, jobs=lambda _: []).run_task("127.0.0.1", port)


if __name__ == "__main__":
    make_repeatable(2)
    asyncio.run(_serve(int(sys.argv[1])))
