"""What may stand for a variable in a path, where that is less than anything."""

from werkzeug.routing import BaseConverter


class RowName(BaseConverter):
    """An audit row's id: anything but the names of endpoints beside it.

    Without this a GET of `…/audit/events` would ask for the row of that name, and a wrong method
    would be told that GET is a good one.
    """

    regex = r"(?!events\Z)[^/]+"


class BindingName(BaseConverter):
    """A binding's id: anything but the names of endpoints beside it."""

    regex = r"(?!(?:explain|rejected)\Z)[^/]+"
