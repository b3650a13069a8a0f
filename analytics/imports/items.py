"""Rows of a file, by wire names and with unchecked values."""

from typing import Final

import msgspec

from analytics.model.row_validation import RowRefused
from analytics.model.schema import COLUMNS, WIRE_COLUMNS
from analytics.model.strict_json import DuplicateKey, check_keys
from analytics.model.validation_errors import describe

NOT_AN_OBJECT: Final = "must be a JSON object in UTF-8, without lone surrogates or deep nesting"
_NOTHING: Final = msgspec.Raw()


IGNORED: Final = ("id", "tenant_id", "received_at", "decision_reason")
_JSON: Final = ("payload", "envelope")


def _with_columns(item: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """`item` with all columns, by wire names: first texts, then JSON, and what is ignored."""
    texts = [
        (column, str | None, msgspec.field(name=name, default=None))
        for name, column in WIRE_COLUMNS.items()
        if name not in {*_JSON, *IGNORED}
    ]
    raws = [(name, msgspec.Raw, _NOTHING) for name in (*_JSON, *IGNORED)]
    return msgspec.defstruct(
        item.__name__,
        [*texts, *raws],
        namespace={"__doc__": item.__doc__},
        module=item.__module__,
        forbid_unknown_fields=True,
        gc=False,
    )


class _Ruled(msgspec.Struct):
    """The columns for which imported rows have rules of their own."""

    created_at: str | None = None
    event: str | None = None
    decision: str | None = None
    verdict_source: str | None = None
    actor_tenant_id: str | None = None
    actor: str | None = None
    actor_source: str | None = None
    oidc_binding_id: str | None = None
    source_ip: str | None = None
    repository_id: str | None = None
    run_id: str | None = None
    token_id: str | None = None
    payload: msgspec.Raw = _NOTHING
    envelope: msgspec.Raw = _NOTHING


@_with_columns
class ImportItem(_Ruled):
    """One row of a file, by wire names; `RowImporter` checks its values."""


ITEM_COLUMNS: Final = tuple(
    field.encode_name
    for field in msgspec.structs.fields(ImportItem)
    if field.encode_name not in IGNORED
)
"""The columns that a file may have, in the order of an ImportItem's fields."""

PLAIN_COLUMNS: Final = tuple(
    column
    for column in COLUMNS
    if column.wire in ITEM_COLUMNS and column.name not in _Ruled.__struct_fields__
)
"""The columns of an item that its row has as they are, once they are checked."""

_TEXTS: Final = len(ITEM_COLUMNS) - len(_JSON)
"""The columns of an item that are text; they come first."""

_item_decoder: Final = msgspec.json.Decoder(ImportItem)
_members_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_object(line: bytes) -> ImportItem:
    """The item in a line of NDJSON. Raises RowRefused."""
    try:
        if not line.isascii():
            line.decode()  # values that are ignored, or decoded later, are not decoded here
        item = _item_decoder.decode(line)
        _check_keys(item, line)
    except DuplicateKey as error:
        raise RowRefused(str(error)) from error
    except msgspec.ValidationError as error:
        raise RowRefused(describe(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RowRefused(f"the line {NOT_AN_OBJECT}") from error
    return item


def _check_keys(item: ImportItem, line: bytes) -> None:
    """Raise DuplicateKey if `line` has a key twice; `item` is its decoded form."""
    # Each key and each text has two quotation marks: too many mean that decoding dropped a key.
    fields = msgspec.structs.astuple(item)
    texts, raws = fields[:_TEXTS], fields[_TEXTS:]
    marked = len(_members_decoder.decode(line)) + _TEXTS - texts.count(None)
    if line.count(b'"') != 2 * marked + b"".join(raws).count(b'"'):
        check_keys(line)
