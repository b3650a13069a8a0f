"""What every refusal is: its status, the field it is about, and its exact text.

Here are the kinds, one for each status, and what several rooms refuse; the others are in the table
of their room, such as `service.audit.refusals`, or beside the only module that raises them. The
app's one error handler turns a `Refusal` into `{"error": text}`. What the caller sees is constant
or names their own input; what went wrong inside is for the log.
"""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final, Self, TypeVar

UNAVAILABLE: Final = 503
RETRY_AFTER_S: Final = 5
"""When to try again after a 503 of which nothing better is known, in seconds."""

OPERATOR_S: Final = 10
"""When to try again where an operator has to act first: a client that repeats it four times, as
package managers do, fails after less than a minute."""

DAMAGED: Final = "stored data is missing or damaged"
"""How the texts about damaged data begin."""

_First = TypeVar("_First")
_Second = TypeVar("_Second")


class Refusal(Exception):
    """An error that the caller can act on."""

    status: ClassVar[int]
    text: str
    example: ClassVar[Mapping[str, object]] = {}
    """Values for the places in the text, for the OpenAPI document."""

    field: str | None = None
    """The body's member, form field or query parameter that is at fault; None for no single one."""

    retry_after_s: int | None = None
    """When to try again, if that is known. A 503 always says so."""

    is_temporary: bool = False
    """Whether the same may succeed later: the exit code of a command tells so."""

    further: "Sequence[Refusal]" = ()
    """Faults of other fields. An API answer names the first one; a form shows all at once."""

    kind: "ClassVar[type[Refusal]]"
    """The class that is written as one: of a row, that which it is a row of."""

    def __init_subclass__(cls, *, is_row: bool = False) -> None:
        """Give every 503 a `Retry-After`: balancers and package managers wait by it."""
        if not is_row:
            cls.kind = cls
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
    def of(
        cls,
        text: str,
        *,
        field: str | None = None,
        status: int | None = None,
        retry_after_s: int | None = None,
        **example: object,
    ) -> type[Self]:
        """A refusal of this kind that nothing catches: a row of a table, raised like a class.

        `raise TOO_MANY(limit=limit)` fills the place `{limit}` in its text, and `example` fills it
        in the OpenAPI document.
        """
        own = {"field": field, "status": status, "retry_after_s": retry_after_s}
        members: dict[str, object] = {
            name: value for name, value in own.items() if value is not None
        }
        members |= {"text": text, "example": example}
        return type(cls.__name__, (cls,), members, is_row=True)

    def __reduce__(self) -> tuple[object, ...]:
        """How it goes to another process, which knows a row as one of its kind."""
        own = {name: getattr(self, name) for name in ("status", "field", "retry_after_s")}
        return self.kind, self.args, own | vars(self)

    @classmethod
    def example_text(cls) -> str:
        """The text with the values of the example."""
        return cls.text.format(**cls.example)

    @classmethod
    def all_of(cls, faults: "Sequence[Self]") -> Self:
        """The first of `faults`, with the others as `further` ones."""
        first, *further = faults
        first.further = further
        return first


class Invalid(Refusal):
    """The request is not valid; the text names the field."""

    status = 400
    text = "invalid request"


class ReasonInvalid(Invalid):
    """A reason is too long or has control characters."""

    field = "reason"
    text = "reason must be at most 1024 chars with no control characters"


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


class Unauthenticated(Refusal):
    """No credentials, or wrong ones.

    `challenge` is what the answer tells clients to send (RFC 9110, 11.6.1). Bearer tokens are
    sessions of command lines. No registered scheme uses our other header fields, and `Basic` would
    make browsers ask for a password.
    """

    status = 401
    text = "missing or invalid credentials"
    challenge: ClassVar[str] = 'Bearer realm="countersign", ApiKey realm="countersign"'


class Forbidden(Refusal):
    """The caller is known and may not do this."""

    status = 403
    text = "forbidden"


class NotFound(Refusal):
    """The resource does not exist."""

    status = 404
    text = "not found"


class OrgNotFound(NotFound):
    """No organisation has this slug."""

    text = "Org not found"


class MethodNotAllowed(Refusal):
    """The path exists for other methods."""

    status = 405
    text = "method not allowed"


class Conflict(Refusal):
    """The change conflicts with what is stored."""

    status = 409
    text = "conflict"


class BodyTooLarge(Refusal):
    """The body has too many bytes."""

    status = 413
    text = "request body is too large"


class UnsupportedMediaType(Refusal):
    """The body is not of a type, or not in an encoding, that is accepted."""

    status = 415
    text = "content-type must be application/json"


class Busy(Refusal):
    """Too many concurrent requests. Nothing was stored; try again after `Retry-After` seconds."""

    status = 429
    text = "too many requests of this organisation at once"
    retry_after_s = 1


class TooManyWaiting(Busy):
    """The organisation has the maximum number of requests that wait for their turn."""

    text = "too many requests of this organisation wait: send fewer at once and try again"
    retry_after_s = 5


class ServerBusy(Refusal):
    """The maximum number of requests of all organisations wait for their turn."""

    status = 503
    text = "too many requests wait for this server: try again later"
    retry_after_s = 5
    is_temporary = True


TOO_MANY_WAITING_OF_CALLER: Final = TooManyWaiting.of(
    "too many requests of yours are under way: wait until one of them ends"
)
WAITED_TOO_LONG: Final = ServerBusy.of(
    "the request waited too long for its turn: try again later, or send fewer at once"
)


class Internal(Refusal):
    """An error in the service. The log has it under the request id."""

    status = 500
    text = "internal error"


NOT_STORABLE_TEXT: Final = Invalid.of(
    "text must not have a NUL character or half of a surrogate pair"
)


class StoreUnavailable(Refusal):
    """The database or the audit folder does not respond. Nothing was changed; try again."""

    status = 503
    text = "storage is unavailable"
    is_temporary = True
    retry_after_s: int | None = 1

    @property
    def reason(self) -> str:
        """What the database or the file system said: for logs and the operator, no bound values."""
        cause = getattr(self.__cause__, "orig", self.__cause__)
        return str(cause) or type(cause).__name__  # a TimeoutError has no text


class StorageFull(StoreUnavailable):
    """The disk is full. Reading still works."""

    status = 507
    text = "storage is full: nothing was changed"
    retry_after_s = None  # until an operator has acted


class StorageBusy(StoreUnavailable):
    """Another process held the database for longer than the limit."""

    text = "storage is busy: nothing was changed, try again"


STORAGE_READ_ONLY: Final = StoreUnavailable.of(
    "storage is read-only: nothing was changed", retry_after_s=OPERATOR_S
)
STORAGE_DAMAGED: Final = StoreUnavailable.of(
    f"{DAMAGED}: the log says where", retry_after_s=OPERATOR_S
)
SEGMENT_DAMAGED: Final = STORAGE_DAMAGED.of(
    f"{DAMAGED}: segment {{value}}. It cannot be read until the operator has put it back with"
    " `countersign audit restore-segment`"
)


@contextmanager
def errors_at(place: str) -> Iterator[None]:
    """Prefix the text of errors raised in the block with `place`."""
    try:
        yield
    except (ValueError, RecursionError, Invalid, Conflict, NotFound) as error:
        raise Invalid(f"{place}: {error}") from error


_FILE_FAULTS: Final[dict[int, type[StoreUnavailable]]] = {
    errno.ENOSPC: StorageFull,
    errno.EDQUOT: StorageFull,
    errno.EROFS: STORAGE_READ_ONLY,
    errno.EACCES: STORAGE_READ_ONLY,
    errno.EPERM: STORAGE_READ_ONLY,
}


def file_fault(error: OSError) -> type[StoreUnavailable]:
    """The refusal for a failure of the file system."""
    return _FILE_FAULTS.get(error.errno or 0, StoreUnavailable)
