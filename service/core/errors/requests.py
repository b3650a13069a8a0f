"""Refusals of what no endpoint accepts: a malformed body, parameter or header."""

from service.core.errors.base import Invalid, Refusal


class NotAnObject(Invalid):
    """The body is not a JSON object."""

    text = "request body must be a JSON object"


class DuplicateMember(Invalid):
    """An object in the body has a member twice; the text names it."""

    text = "request body has a member twice: {value}"


class NotANumber(Invalid):
    """The body has a number that JSON does not allow; the text names it."""

    text = "request body has {value}, which is not a JSON number"


class NotStorableText(Invalid):
    """The request has text that the database cannot store or compare."""

    text = "text must not have half of a surrogate pair"


class NoBodyExpected(Invalid):
    """The endpoint takes no body."""

    text = "this request takes no body: leave it empty"


class NotGzip(Invalid):
    """The body says it is gzip and is not."""

    text = "request body is not valid gzip"


class InvalidCursor(Invalid):
    """A cursor that was not made for this query."""

    field = "cursor"
    text = "cursor is not valid for this query"


class UnknownField(Invalid):
    """The body has keys that mean nothing here; the text names them."""

    text = "unknown field: {value}"


class UnknownParameter(Invalid):
    """The query string has parameters that mean nothing here; the text names them."""

    text = "unknown query parameter: {value}"


class ReasonInvalid(Invalid):
    """A reason is too long or has control characters."""

    field = "reason"
    text = "reason must be at most 1024 chars with no control characters"


class BodyTooLarge(Refusal):
    """The body has too many bytes."""

    status = 413
    text = "request body is too large"


class NotJson(Refusal):
    """The body is not declared as JSON."""

    status = 415
    text = "content-type must be application/json"


class UnknownEncoding(NotJson):
    """The content encoding is not supported."""

    text = "content-encoding must be gzip or identity"


class NotForm(Refusal):
    """The body is not declared as a form."""

    status = 415
    text = "content-type must be application/x-www-form-urlencoded"


BODY_REFUSALS: tuple[type[Refusal], ...] = (
    DuplicateMember,
    NotANumber,
    NotGzip,
    BodyTooLarge,
    NotJson,
    UnknownEncoding,
)
"""What reading a JSON body refuses, besides NotAnObject."""
