"""Apps of one process share what werkzeug compiles of their routes.

Each test's world has an app of its own, and to compile its 65 routes takes 35 ms: longer than all
else. The outcome depends on the route's text and the names of converters alone.
"""

from typing import Any

from werkzeug.routing import Rule

_COMPILED = ("_parts", "_trace", "_converters", "arguments")
"""What `Rule.compile` makes of a rule, beside the functions that build its URLs."""

_rules: dict[object, Rule] = {}
_compile = Rule.compile


def _compile_once(rule: Rule) -> None:
    """Compile `rule`, or copy what was compiled of an equal one."""
    assert rule.map is not None
    key = (
        rule.rule,
        rule.host if rule.map.host_matching else rule.subdomain,
        rule.merge_slashes,
        repr(sorted((rule.defaults or {}).items())),
        tuple(sorted((name, id(made)) for name, made in rule.map.converters.items())),
    )
    if key not in _rules:
        _compile(rule)
        _rules[key] = rule
        return
    twin: Any = _rules[key]
    for name in _COMPILED:
        setattr(rule, name, getattr(twin, name).copy())
    for name in ("_build", "_build_unknown"):
        setattr(rule, name, getattr(twin, name).__func__.__get__(rule, None))


def share_route_builders() -> None:
    """From now on compile each route once."""
    rule: Any = Rule
    rule.compile = _compile_once
