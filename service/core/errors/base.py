"""What every refusal is, and the kinds that the others are of: one for each status.

The app's one error handler turns a `Refusal` into `{"error": text}`. What the caller sees is
constant or names their own input; what went wrong inside is for the log.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Self, TypeVar

UNAVAILABLE: Final = 503
RETRY_AFTER_S: Final = 5
"""When to try again after a 503 of which nothing better is known, in seconds."""


_First = TypeVar("_First")
_Second = TypeVar("_Second")


class Refusal(Exception):
    """An error that the caller can act on."""

    status: ClassVar[int]
    text: str
    field: str | None = None
    """The body's member, form field or query parameter that is at fault; None for no single one."""

    retry_after_s: int | None = None
    """When to try again, if that is known. A 503 always says so."""

    is_temporary: bool = False
    """Whether the same may succeed later: the exit code of a command tells so."""

    further: "Sequence[Refusal]" = ()
    """Faults of other fields. An API answer names the first one; a form shows all at once."""

    def __init_subclass__(cls) -> None:
        """Give every 503 a `Retry-After`: balancers and package managers wait by it."""
        if getattr(cls, "status", None) == UNAVAILABLE and cls.retry_after_s is None:
            cls.retry_after_s = RETRY_AFTER_S

    def __init__(
        self, text: str | None = None, *, field: str | None = None, **values: object
    ) -> None:
        """`text` and `field` replace the class's own; `values` fill the places in its text."""
        self.text = text if text is not None else type(self).text.format(**values)
        if field is not None:
            self.field = field
        super().__init__(self.text)

    @classmethod
    def of(cls, text: str, *, field: str | None = None) -> type[Self]:
        """A refusal of this kind that is never caught by itself: a constant, not a class statement.

        `raise TOO_MANY(limit=5)` fills the place `{limit}` of its text. Its name in the OpenAPI
        document is the cause that the text begins with.
        """
        return type(text.partition(": ")[0], (cls,), {"text": text, "field": field})

    @classmethod
    def all_of(cls, faults: "Sequence[Self]") -> Self:
        """The first of `faults`, with the others as `further` ones."""
        first, *further = faults
        first.further = further
        return first

    @property
    def by_field(self) -> dict[str, str]:
        """The texts of all faults that are of one field each, by field."""
        faults = (self, *self.further)
        return {fault.field: fault.text for fault in faults if fault.field is not None}


class Invalid(Refusal):
    """The request is not valid; the text names the field."""

    status = 400
    text = "invalid request"


def parse_both(
    first: Callable[[], _First], second: Callable[[], _Second]
) -> tuple[_First, _Second]:
    """The results of both. Raises Invalid with the faults of both: a form shows them all."""
    try:
        parsed = first()
    except Invalid as fault:
        try:
            second()
        except Invalid as other:
            fault.further = (*fault.further, other, *other.further)
        raise
    return parsed, second()


class Forbidden(Refusal):
    """The caller is known and may not do this."""

    status = 403
    text = "forbidden"


class NotFound(Refusal):
    """The resource does not exist."""

    status = 404
    text = "not found"


class MethodNotAllowed(Refusal):
    """The path exists for other methods."""

    status = 405
    text = "method not allowed"


class Conflict(Refusal):
    """The change conflicts with what is stored."""

    status = 409
    text = "conflict"


class Busy(Refusal):
    """Too many concurrent requests. Nothing was stored; try again after `Retry-After` seconds."""

    status = 429
    text = "too many requests of this organisation at once"
    retry_after_s = 1


class TooManyWaiting(Busy):
    """The organisation has the maximum number of requests that wait for their turn."""

    text = "too many requests of this organisation wait: send fewer at once and try again"
    retry_after_s = 5


class TooManyWaitingOfCaller(TooManyWaiting):
    """The key, session or token has the maximum number of requests under way."""

    text = "too many requests of yours are under way: wait until one of them ends"


class ServerBusy(Refusal):
    """The maximum number of requests of all organisations wait for their turn."""

    status = 503
    text = "too many requests wait for this server: try again later"
    retry_after_s = 5
    is_temporary = True


class WaitedTooLong(ServerBusy):
    """The request waited too long for its turn. Nothing was begun."""

    text = "the request waited too long for its turn: try again later, or send fewer at once"


class WorkersUnavailable(ServerBusy):
    """The processes that compute this did not start, or ended meanwhile; the log says why."""

    text = "the server cannot compute this now: try again later"


class Internal(Refusal):
    """An error in the service. The log has it under the request id."""

    status = 500
    text = "internal error"
