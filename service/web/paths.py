"""Paths: what may stand for a variable in one, and the one that people are sent to."""

from urllib.parse import quote

from werkzeug.routing import BaseConverter


def overview_path(slug: str) -> str:
    """Where an organisation's pages begin: each of its members may look there."""
    return f"/admin/ui/orgs/{quote(slug)}"


class RowName(BaseConverter):
    """An audit row's id: anything but the names of endpoints beside it.

    Without this a GET of `…/audit/events` would ask for the row of that name, and a wrong method
    would be told that GET is a good one.
    """

    regex = r"(?!events\Z)[^/]+"


class BindingName(BaseConverter):
    """A binding's id: anything but the names of endpoints beside it."""

    regex = r"(?!(?:explain|rejected)\Z)[^/]+"
