"""The list of all projects, which the proxy serves empty.

Upstream's list has hundreds of thousands of names, and no client needs it for an install: pip, uv
and poetry request the page of a project by its name. An empty list is a valid answer (PEP 503,
691), whereas tools that probe the index would report a 404 as broken.
"""

from typing import Final

from service.packages.proxy.pypi.accept import PageForm

_JSON: Final = b'{"meta":{"api-version":"1.0"},"projects":[]}'
_HTML: Final = (
    b'<!DOCTYPE html>\n<html>\n<head>\n<meta name="pypi:repository-version" content="1.0">\n'
    b"<title>Simple index</title>\n</head>\n<body>\n"
    b"<p>This index has no list of projects. Request a project by its name.</p>\n"
    b"</body>\n</html>\n"
)


def render_root(form: PageForm) -> bytes:
    """A valid list without projects."""
    return _JSON if form.is_json else _HTML
