"""Checks the envelope of an imported row, and encodes it as the row stores it."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from analytics.imports.items import NOT_AN_OBJECT, ImportItem
from analytics.model.decision_reason import compact, decision_reason
from analytics.model.envelopes import ENVELOPES, EVENTS, VerifiedCi
from analytics.model.events import Envelope
from analytics.model.row_validation import (
    RowRefused,
)
from analytics.model.strict_json import DuplicateKey, check_keys
from analytics.model.validation_errors import describe

_NO_ENVELOPE: Final = frozenset({b"", b"null"})


@dataclass(frozen=True, slots=True)
class ImportedEnvelope:
    """A checked envelope, encoded as its row stores it."""

    envelope: Envelope
    reason: str
    payload: str
    ci: VerifiedCi | None


def raw_envelope(item: ImportItem) -> tuple[str, bytes]:
    """The column that holds the envelope, and its JSON; without one the envelope is empty."""
    payload, envelope = bytes(item.payload), bytes(item.envelope)
    if payload in _NO_ENVELOPE:
        return ("payload", b"{}") if envelope in _NO_ENVELOPE else ("envelope", envelope)
    if envelope not in _NO_ENVELOPE:
        raise RowRefused("payload and envelope are two names of one thing: give one of them")
    return "payload", payload


def _with_ci(envelope: type[Envelope]) -> type[msgspec.Struct]:
    """`envelope` as in a payload, in which the claims of a CI token may accompany its keys."""
    return msgspec.defstruct(
        envelope.__name__,
        [("ci", VerifiedCi | msgspec.UnsetType, msgspec.UNSET)],
        bases=(envelope,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


_envelope_decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    event: msgspec.json.Decoder(_with_ci(envelope)) for event, envelope in ENVELOPES.items()
}


def read_envelope(event: str, name: str, raw: bytes) -> ImportedEnvelope:
    """The envelope of `event` in `raw`, the value of the column `name`. Raises RowRefused."""
    decoder = _envelope_decoders.get(event)
    if decoder is None:
        raise RowRefused(f"event must be one of {', '.join(sorted(EVENTS))}")
    try:
        envelope = decoder.decode(raw)
        check_keys(raw)
    except DuplicateKey as error:
        raise RowRefused(str(error)) from error
    except msgspec.ValidationError as error:
        raise RowRefused(describe(error, name)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RowRefused(f"{name} {NOT_AN_OBJECT}") from error
    bare = msgspec.structs.replace(envelope, ci=msgspec.UNSET) if envelope.ci else envelope
    return ImportedEnvelope(
        envelope=envelope,
        reason=decision_reason(msgspec.to_builtins(bare)),
        payload=compact(envelope),
        ci=envelope.ci or None,
    )
