"""What endpoints receive and answer: structs that parse requests, and are their documentation."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta, Struct, UnsetType, ValidationError, inspect
from werkzeug.datastructures import MultiDict

from analytics.model.filters import only
from analytics.model.instants import optional_ms, optional_us
from service.core.errors import Invalid, Refusal
from service.core.threads import in_thread
from service.web.refusals import UNKNOWN_FIELD

# The dates of the Gregorian calendar, leap years included.
DATE_PATTERN: Final = (
    r"(?!0000)([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    r"|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
)

# With an offset, the first and the last day are excluded: in UTC they may be outside all years.
INSTANT_PATTERN: Final = (
    rf"(?!(0001-01-01|9999-12-31).[0-9:.]+[+\- ]){DATE_PATTERN}"
    r"[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
    r"([Zz]|[+\- ]([01][0-9]|2[0-3]):[0-5][0-9])?"
)

INSTANT_OR_DATE_PATTERN: Final = f"^({DATE_PATTERN}|{INSTANT_PATTERN})$"
TIMESTAMP_MS_PATTERN: Final = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"
TIMESTAMP_US_PATTERN: Final = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$"
SHA256_PATTERN: Final = "^[0-9a-f]{64}$"
FILTER_PATTERN: Final = r"^(![\s\S]|[^!])"
"""A value of a filter; a negation needs one."""
_Value = TypeVar("_Value")
Omittable: TypeAlias = _Value | UnsetType
"""The type of a parameter or member that may be missing; its default is UNSET."""

InstantOrDate = Annotated[
    str,
    Meta(examples=["2026-01-31T08:00:00Z"], extra_json_schema={"pattern": INSTANT_OR_DATE_PATTERN}),
]
"""An instant or a date in a request. The endpoint parses it: its errors say more than a pattern."""

TimestampMs = Annotated[
    str,
    Meta(
        pattern=TIMESTAMP_MS_PATTERN,
        examples=["2026-01-31T08:00:00.000Z"],
        extra_json_schema={"format": "date-time"},
    ),
]
"""An instant in an answer, with milliseconds."""

TimestampUs = Annotated[
    str,
    Meta(
        pattern=TIMESTAMP_US_PATTERN,
        examples=["2026-01-31T08:00:00.000000Z"],
        extra_json_schema={"format": "date-time"},
    ),
]
"""An instant in an answer, with microseconds."""

NonNegative = Annotated[int, Meta(ge=0)]

PageCursor = Annotated[str, Meta(description="`next_cursor` of the page before.")]


_ECHO_CHARS_MAX: Final = 64
_UNCONVERTED: Final = (ValidationError, UnicodeEncodeError)  # the latter for half a surrogate pair
_FLAGS: Final = {"true": True, "false": False}
_ETAG: Final = re.compile(r'(?:W/)?"(0|[1-9][0-9]{0,8})"', re.ASCII)
_INTEGER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_INSTANTS: Final = {TIMESTAMP_MS_PATTERN: optional_ms, TIMESTAMP_US_PATTERN: optional_us}

_Parsed = TypeVar("_Parsed")
_Parsed_co = TypeVar("_Parsed_co", covariant=True)


class Request(Struct, kw_only=True, forbid_unknown_fields=True):
    """What an endpoint receives: the members of a body, or the parameters of a query."""

    @classmethod
    def parse(cls, given: dict[str, Any]) -> Self:
        """The request in JSON's types. Raises Invalid with the faults of all fields.

        They are in this order: unknown fields, then the others as they are declared.
        """
        try:
            return msgspec.convert(given, cls)
        except _UNCONVERTED as error:
            raise Invalid.all_of(_faults(cls, given)) from error

    @classmethod
    def parse_texts(cls, given: Mapping[str, Sequence[str]]) -> Self:
        """The request in the texts of a query string. Raises InvalidQuery, Invalid.

        Only a field that is a list may be given several times.
        """
        return cls.parse(typed(cls, given))


OCTETS: Final = "application/octet-stream"


class Answer(Struct, kw_only=True):
    """What an endpoint answers."""

    @property
    def etag(self) -> str | None:
        """The ETag of the response; None for none."""
        return None

    @property
    def location(self) -> str | None:
        """Where what was created is read, below the path of its resource; None for nowhere."""
        return None

    @classmethod
    def from_row(cls, row: object, /, **others: Any) -> Self:  # noqa: ANN401 - as each field says
        """The answer whose fields are the attributes of `row` of their names, but for `others`.

        An instant is written with milliseconds or microseconds, as the type of its field says.
        """
        values = {
            name: write(getattr(row, name)) if write else getattr(row, name)
            for name, write in _row_fields(cls)
            if name not in others
        }
        return cls(**values, **others)


class RawBytes(Answer):
    """Bytes as the body, of the type OCTETS: a handler returns them in a Response."""


class SecretAnswer(Answer, kw_only=True):
    """An answer with a secret, which is in no log and in no cache."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Precondition(Struct, kw_only=True, rename="kebab"):
    """The revision that a change replaces: its ETag in `If-Match`, or `*` for any.

    A subclass declares the field `if_match` for the document, and what is raised without it.
    """

    missing: ClassVar[type[Invalid]]

    @classmethod
    def replaced(cls, values: Sequence[str]) -> int | None:
        """The revision in the `values` of `If-Match`; None for any. Raises `missing`, Invalid."""
        if not values:
            raise cls.missing
        if values == ["*"]:
            return None
        match = _ETAG.fullmatch(values[0]) if len(values) == 1 else None
        if match is None:
            raise Invalid('If-Match must be one ETag such as "3", or *', field="if-match")
        return int(match[1])


class Body(Protocol[_Parsed_co]):
    """How a body is parsed: a `Request` by its fields, a `Parsed` by a function."""

    def parse(self, given: dict[str, Any], /) -> _Parsed_co:
        """What the handler receives. Raises Invalid."""


@dataclass(frozen=True, slots=True)
class Parsed(Generic[_Parsed]):
    """A body that is documented as `model`; the handler receives what `parse` makes of it.

    For rules on several fields, and for bodies with texts of their own: `parse` runs before a
    transaction is opened, and `is_long` in a thread. A form can be bound only to a `Request`.
    `refuses` is what a body can be refused with, if that is documented text by text.
    """

    model: object
    parse: Callable[[dict[str, Any]], _Parsed]
    is_long: bool = False
    refuses: Sequence[type[Refusal]] = (Invalid,)
    bytes_max: int = 0
    """What a body may have beyond the limit of all bodies. The app admits it on its path."""


class Parameters(Protocol[_Parsed_co]):
    """How parameters are parsed: a `Request` by its fields, a `ParsedQuery` by a function."""

    def parse_texts(self, given: dict[str, list[str]], /) -> _Parsed_co:
        """What the handler receives. Raises InvalidQuery, Invalid."""


@dataclass(frozen=True, slots=True)
class ParsedQuery(Generic[_Parsed]):
    """Parameters documented as `model`; the handler receives what `parse_texts` makes of them.

    For parameters with texts or an order of their own. Unless it `checks_names` itself, names
    beside those of `model` are refused before. `refuses` is as in `Parsed`.
    """

    model: type[Struct]
    parse_texts: Callable[[dict[str, list[str]]], _Parsed]
    checks_names: bool = False
    refuses: Sequence[type[Refusal]] = (Invalid,)


@dataclass(frozen=True, slots=True)
class Raw:
    """A JSON body that is documented as `model`; the handler receives its bytes.

    For long ones that the handler decodes in a thread. The app admits `bytes_max` on its path.
    """

    model: object
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as the body, of this media type; the handler receives it spooled, open to be read.

    The app admits `bytes_max` on its path.
    """

    media: str
    bytes_max: int


async def parsed_body(body: Body[_Parsed], given: dict[str, Any]) -> _Parsed:
    """What the handler receives. Raises Invalid."""
    if isinstance(body, Parsed) and body.is_long:
        return await in_thread(body.parse, given)
    return body.parse(given)


def model_of(body: Body[object] | Raw | Upload) -> object:
    """The model that documents `body`; of a file, its media type."""
    if isinstance(body, Upload):
        return {body.media: None}
    return body.model if isinstance(body, Parsed | Raw) else body


def refusals_of(values: Body[object] | Parameters[object] | Raw | None) -> Sequence[type[Refusal]]:
    """What such a body or query can be refused with."""
    if isinstance(values, Parsed | ParsedQuery):
        return values.refuses
    return () if values is None else (Invalid,)


def query_model_of(query: Parameters[object] | None) -> type[Struct] | None:
    """The model that documents `query`; None for none."""
    if isinstance(query, ParsedQuery):
        return query.model
    return cast("type[Request] | None", query)  # the other kind of a Parameters


def typed(model: type[Request], given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The texts of a query string or form in the types of `model`, as far as they are of them.

    Raises InvalidQuery.
    """
    values: dict[str, Any] = {}
    for field in _fields(model):
        if field.name in given:
            is_list = isinstance(field.type, inspect.ListType)
            values[field.name] = (
                list(given[field.name]) if is_list else _value(field, only(given, field.name) or "")
            )
    return values


def form_values(model: type[Request], form: MultiDict[str, str]) -> dict[str, Any]:
    """The fields of an HTML form in the types of `model`; an empty one that is optional is none."""
    texts: dict[str, list[str]] = {}
    for field in _fields(model):
        text = form.get(field.name, "").strip()
        if isinstance(field.type, inspect.ListType):
            texts[field.name] = form.getlist(field.name)
        elif text or field.is_required:
            texts[field.name] = [text]
    return typed(model, texts)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field; `hint` is the type that its values are converted to, `type` that without null."""

    name: str
    hint: Any
    type: inspect.Type
    is_required: bool
    example: object
    """What it may be, if its model has an example."""

    @property
    def choices(self) -> tuple[object, ...]:
        """What a field that is one of few values may be; empty for any other."""
        if isinstance(self.type, inspect.EnumType):
            return tuple(member.value for member in self.type.cls)
        return _literals(self.hint) if isinstance(self.type, inspect.LiteralType) else ()

    def fault(self, value: object) -> str:
        """Why `value`, which cannot be converted, is none of this field."""
        if self.choices:
            return f"{self.name} must be one of {', '.join(map(str, self.choices))}"
        if isinstance(self.type, inspect.StrType) and not isinstance(value, str):
            required = f"{self.name} is required (string)"
            return required if self.is_required else f"{self.name} must be a string"
        if isinstance(self.type, inspect.StrType) and value == "" and self.type.min_length:
            return f"{self.name} must not be empty"
        if isinstance(self.type, inspect.StrType) and self.type.max_length is not None:
            return f"{self.name} must be at most {self.type.max_length} characters"
        if isinstance(self.type, inspect.ListType):
            return f"{self.name} must be an array of strings"
        if isinstance(self.type, inspect.IntType):
            return f"{self.name} must be an integer from {self.type.ge} to {self.type.le}"
        if self.example is not None:
            return f"{self.name} must look like {self.example}"
        if isinstance(self.type, inspect.BoolType):
            return f"{self.name} must be true or false"
        return f"{self.name} is not valid"


@cache
def _fields(model: type[Request]) -> tuple[_Field, ...]:
    hints = get_type_hints(model, include_extras=True)
    info = inspect.type_info(model)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - a model is one
    return tuple(
        _Field(
            field.encode_name,
            hints[field.name],
            _bare(field.type),
            field.required,
            _example(field.type),
        )
        for field in info.fields
    )


_RowFields = tuple[tuple[str, Callable[[Any], object] | None], ...]
# Weak: a class that outlives its module, as a process ends, keeps all that this has imported, and
# DuckDB prints forty lines about that.
_ROW_FIELDS: Final = WeakKeyDictionary[type[Answer], _RowFields]()


def _row_fields(model: type[Answer]) -> _RowFields:
    """The fields of `model` by name, each with what writes its instants, if it has those."""
    if model not in _ROW_FIELDS:
        info = inspect.type_info(model)
        assert isinstance(info, inspect.StructType)  # noqa: S101 - a model is one
        _ROW_FIELDS[model] = tuple(
            (field.name, _INSTANTS.get(getattr(_bare(field.type), "pattern", None) or ""))
            for field in info.fields
        )
    return _ROW_FIELDS[model]


def _bare(kind: inspect.Type) -> inspect.Type:
    """`kind` without its description, and without null beside one other type."""
    if isinstance(kind, inspect.Metadata):
        return _bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return _bare(others[0]) if len(others) == 1 else kind
    return kind


def _example(kind: inspect.Type) -> object:
    """The first example of a field's description; None if it has none."""
    schema = (kind.extra_json_schema or {}) if isinstance(kind, inspect.Metadata) else {}
    return next(iter(schema.get("examples", ())), None)


def _literals(hint: Any) -> tuple[object, ...]:  # noqa: ANN401 - any type
    """The values of the Literal in `hint`, as they are declared; msgspec sorts them."""
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return inner
    return next((values for each in inner if (values := _literals(each))), ())


def _value(field: _Field, text: str) -> object:
    if isinstance(field.type, inspect.IntType) and _INTEGER.fullmatch(text):
        return int(text)
    if isinstance(field.type, inspect.BoolType):
        return _FLAGS.get(text, text)
    return text


def _faults(model: type[Request], given: Mapping[str, Any]) -> list[Invalid]:
    """The faults of all fields of `given`, which is no `model`."""
    fields = _fields(model)
    known = {field.name for field in fields}
    names = [name[:_ECHO_CHARS_MAX] for name in given if name not in known]
    faults: list[Invalid] = [UNKNOWN_FIELD(value=name, field=name) for name in names]
    for field in fields:
        if field.name in given or field.is_required:
            text = _fault(field, given.get(field.name))
            faults += [] if text is None else [Invalid(text, field=field.name)]
    return faults


def _fault(field: _Field, value: object) -> str | None:
    """The error of one field; None if `value` is good. A required one that is missing is None."""
    try:
        msgspec.convert(value, field.hint)
    except _UNCONVERTED:
        return field.fault(value)
    return None
