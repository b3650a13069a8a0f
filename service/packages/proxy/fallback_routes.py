"""The proxy's answers to unknown paths and to methods that no endpoint accepts.

Credentials are required here, too: package managers learn from any path how to send them.
"""

from typing import Final

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from service.core.errors import MethodNotAllowed, NotFound, PublishingNotSupported
from service.packages.proxy.services import ProxyServices
from service.web.dependencies import receives
from service.web.responses import error_answer

_READING: Final = ("GET", "HEAD")
_WRITING: Final = ("DELETE", "PATCH", "POST", "PUT")

blueprint = Blueprint("proxy_fallback", __name__)


@blueprint.route("/proxy/<slug>/", methods=[*_READING, "OPTIONS", *_WRITING])
@blueprint.route("/proxy/<slug>/<path:rest>", methods=[*_READING, "OPTIONS", *_WRITING])
@receives(ProxyServices)
async def fallback(services: ProxyServices, slug: str, rest: str = "") -> ResponseReturnValue:
    """401 without credentials; else 404, or 405 for a method that does not read."""
    await services.authorize(request, slug)
    if request.method in _READING:
        raise NotFound
    is_write = request.method in _WRITING and rest.startswith(("npm/", "pypi/"))
    return _not_allowed(PublishingNotSupported if is_write else MethodNotAllowed)


def _not_allowed(refusal: type[MethodNotAllowed]) -> Response:
    answer = error_answer(refusal.text, refusal.status)
    answer.headers["allow"] = ", ".join(_READING)  # RFC 9110, 15.5.6
    return answer
