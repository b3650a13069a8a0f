"""Apps of one process share what werkzeug compiles of their routes.

Each test's world has an app of its own, and its 65 routes are compiled for 30 ms: nearly half of
what a world takes. The outcome depends on the route's text alone.
"""

from collections.abc import Callable
from typing import Any

from werkzeug.routing import Rule

_builders: dict[object, Callable[..., tuple[str, str]]] = {}
_compile_builder = Rule._compile_builder


def _remembered(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
    key = (
        rule.rule,
        rule.host,
        rule.subdomain,
        repr(sorted((rule.defaults or {}).items())),
        append_unknown,
    )
    if key not in _builders:
        _builders[key] = _compile_builder(rule, append_unknown)
    return _builders[key]


def share_route_builders() -> None:
    """From now on compile each route once."""
    rule: Any = Rule
    rule._compile_builder = _remembered
