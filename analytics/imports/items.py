"""Rows of a file, by wire names and with unchecked values."""

from typing import Final

import msgspec

from analytics.model.row_validation import RowRefused
from analytics.model.strict_json import DuplicateKey, check_keys
from analytics.model.validation_errors import describe

NOT_AN_OBJECT: Final = "must be a JSON object in UTF-8, without lone surrogates or deep nesting"
_NOTHING: Final = msgspec.Raw()


class ImportItem(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One row of a file, by wire names; `RowImporter` checks its values."""

    created_at: str | None = None
    event: str | None = None
    package_name: str | None = msgspec.field(name="packageName", default=None)
    version: str | None = None
    decision: str | None = None
    verdict_source: str | None = None
    actor_tenant_id: str | None = None
    actor: str | None = None
    actor_source: str | None = None
    subject: str | None = None
    oidc_binding_id: str | None = None
    request_id: str | None = None
    source_ip: str | None = None
    ecosystem: str | None = None
    repository_id: str | None = None
    run_id: str | None = None
    token_id: str | None = None
    file_name: str | None = None
    file_sha256: str | None = None
    client: str | None = None
    payload: msgspec.Raw = _NOTHING
    envelope: msgspec.Raw = _NOTHING
    id: msgspec.Raw = _NOTHING
    tenant_id: msgspec.Raw = _NOTHING
    received_at: msgspec.Raw = _NOTHING
    decision_reason: msgspec.Raw = _NOTHING


IGNORED: Final = ("id", "tenant_id", "received_at", "decision_reason")
ITEM_COLUMNS: Final = tuple(
    field.encode_name
    for field in msgspec.structs.fields(ImportItem)
    if field.encode_name not in IGNORED
)
"""The columns that a file may have, in the order of an ImportItem's fields."""

_TEXTS: Final = len(ITEM_COLUMNS) - len(("payload", "envelope"))
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
