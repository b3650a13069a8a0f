"""URL paths: converters for their variables, and an organisation's first page."""

from urllib.parse import quote

from werkzeug.routing import BaseConverter


def overview_path(slug: str) -> str:
    """Path of an organisation's first page, which each of its members may read."""
    return f"/admin/ui/orgs/{quote(slug)}"


class RowName(BaseConverter):
    """An audit row's id: anything but the name of a sibling endpoint.

    Without this a GET of `…/audit/events` would look up a row of that name, and a wrong method
    would be answered with `Allow: GET`.
    """

    regex = r"(?!(?:events|searches)\Z)[^/]+"


class BindingName(BaseConverter):
    """A binding's id: anything but the name of a sibling endpoint."""

    regex = r"(?!(?:explain|rejected|revoke|sync)\Z)[^/]+"
