"""Apps of one process share what Quart and werkzeug make of their routes.

Each test's world has an app of its own, and to register the service's blueprints takes twice as
long as all else of it. The outcome is the same for all apps: no blueprint knows the app.
"""

from operator import attrgetter
from typing import Any, Final

from quart import Blueprint, Quart

from service.app import application as service_app

_BY_NAME: Final = ("view_functions", "blueprints", "jinja_env.filters", "jinja_env.globals")
_BY_SCOPE: Final = ("error_handler_spec", "template_context_processors")
"""What registering a blueprint adds to, beside the map of routes; the values are not changed."""

_first: dict[str, Any] = {}
"""What the first app was after its last blueprint."""

_register = Quart.register_blueprint


def _register_once(app: Quart, blueprint: Blueprint, **options: Any) -> None:
    """Register `blueprint`; or, with the last one, have what the first app had by then."""
    is_last = blueprint is service_app._BLUEPRINTS[-1]
    if not _first or blueprint not in service_app._BLUEPRINTS:
        _register(app, blueprint, **options)
        if is_last:  # and so the app is the service's
            _first["url_map"] = app.url_map
            for name in (*_BY_NAME, *_BY_SCOPE):
                _first[name] = dict(attrgetter(name)(app))
        return
    if not is_last:
        return
    app.url_map = _first["url_map"]
    for name in _BY_NAME:
        made = attrgetter(name)(app)
        made.update({key: value for key, value in _first[name].items() if key not in made})
    for name in _BY_SCOPE:
        made = attrgetter(name)(app)
        made.update({key: value for key, value in _first[name].items() if key is not None})


def share_routes() -> None:
    """From now on register each blueprint once."""
    quart: Any = Quart
    quart.register_blueprint = _register_once
