"""Apps of one process share what werkzeug compiles of their routes.

Each test's world has an app of its own, and to compile its routes takes twice as long as all else
of it. The outcome is the same for all apps of the service.
"""

import asyncio
from pathlib import Path
from typing import Final

from quart.routing import QuartRule

from service.app.application import App, app_of
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.settings import Settings

_compiled: Final[dict[tuple[object, ...], QuartRule]] = {}


class _SharedRule(QuartRule):
    """A route that is compiled once."""

    def compile(self) -> None:
        """Compile it, or have what an equal one has of it."""
        key = (self.rule, self.endpoint, frozenset(self.methods or ()), self.merge_slashes)
        first = _compiled.get(key)
        if first is None:
            super().compile()
            _compiled[key] = self
        else:
            vars(self).update(vars(first) | {"map": self.map})


def share_routes() -> None:
    """From now on compile each route once."""
    App.url_rule_class = _SharedRule


def compile_routes() -> None:
    """Compile all routes now, for this process and those that are forked from it.

    An app has no files and threads before its first request.
    """
    share_routes()
    services = build_services(Settings(data_dir=Path("/nowhere"), secret_key="x" * 32), utc_now)
    app_of(services)
    asyncio.run(services.close())
