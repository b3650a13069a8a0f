"""Checks imported rows before they are stored like our own.

An importer is trusted to state who acted and when, but not to add rows that this service could not
have written. `id`, `tenant_id`, `received_at` and `decision_reason` of a file are ignored: the
first three are assigned anew, the last one is derived from the envelope.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from analytics.imports.items import NOT_AN_OBJECT, PLAIN_COLUMNS, ImportItem
from analytics.model.decision_reason import compact, decision_reason
from analytics.model.envelopes import ENVELOPES, EVENTS, Admission, VerifiedCi
from analytics.model.events import Decision, Envelope
from analytics.model.row_validation import (
    ERROR_CHARS_MAX,
    AcceptedInterval,
    RowRefused,
    check_decision,
    column_check,
)
from analytics.model.rows import (
    ACTOR_SOURCES,
    NO_CI_COLUMNS,
    AuditContext,
    AuditRow,
    CiColumns,
    VerdictSource,
    ci_columns,
)
from analytics.model.schema import COLUMNS
from analytics.model.strict_json import DuplicateKey, check_keys
from analytics.model.validation_errors import describe

MEMO_MAX: Final = 10_000
MEMO_BYTES_MAX: Final = 1_024
"""The number of remembered envelopes, and the maximum length of one."""

_CHECKS: Final = {column.name: column_check(column) for column in COLUMNS}
_PLAIN: Final = tuple((column.name, _CHECKS[column.name]) for column in PLAIN_COLUMNS)

_CI_MEMBERS: Final = {"repository_id": "repository_id", "run_id": "run_id", "token_id": "jti"}
"""The member of `payload.ci` that corresponds to each column of CiColumns."""

_NO_ENVELOPE: Final = frozenset({b"", b"null"})
_OIDC_SOURCE: Final = re.compile(r"oidc_[a-z0-9]+(_[a-z0-9]+)*", re.ASCII)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Who = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a row of a file was refused; `line` counts from 1 (in Parquet files, it counts rows)."""

    line: int
    error: str


def refused(line: int, error: RowRefused) -> Refused:
    """The refusal of `line`, of limited length even if it quotes the file."""
    return Refused(line, str(error)[:ERROR_CHARS_MAX])


@dataclass(frozen=True, slots=True)
class _ImportedEnvelope:
    """A checked envelope, encoded as its row stores it."""

    envelope: Envelope
    reason: str
    payload: str
    ci: VerifiedCi | None


@dataclass(slots=True)
class RowImporter:
    """Makes rows from items.

    `audit_context` is who imports; `window.now` is when the rows are received.

    Most rows repeat the envelope and the audit context of an earlier one, so checked ones are
    remembered.
    """

    audit_context: AuditContext
    window: AcceptedInterval
    _said: dict[tuple[str, bytes], _ImportedEnvelope] = field(default_factory=dict)
    _stamps: dict[_Who, AuditContext] = field(default_factory=dict)

    def rows(
        self, items: Iterable[tuple[int, ImportItem | RowRefused]]
    ) -> tuple[list[AuditRow], list[Refused]]:
        """The rows made from the numbered `items`, and why other items were refused."""
        rows: list[AuditRow] = []
        faults: list[Refused] = []
        for line, item in items:
            try:
                if isinstance(item, RowRefused):
                    raise item
                rows.append(self.row(item))
            except RowRefused as error:
                faults.append(refused(line, error))
        return rows, faults

    def row(self, item: ImportItem) -> AuditRow:
        """The row made from `item`. Raises RowRefused."""
        if item.event is None or item.created_at is None:
            raise RowRefused(f"{'created_at' if item.event else 'event'} is required")
        said = self._envelope(item.event, item)
        check_decision(item.event, item.decision, said.envelope.decision)
        audit_context = self._audit_context(item, _ci_field(item, said.ci))
        ci = _ci_columns(item, said.ci)
        plain: dict[str, str] = {}
        for name, check in _PLAIN:
            text = getattr(item, name)
            if text is not None:
                check(text)
                plain[name] = text
        return AuditRow(
            created_at=self.window.instant(item.created_at),
            received_at=self.window.now,
            event=item.event,
            decision=said.envelope.decision,
            decision_reason=said.reason,
            verdict_source=audit_context.verdict_source,
            actor_tenant_id=audit_context.actor_tenant_id,
            actor=audit_context.actor,
            actor_source=audit_context.actor_source,
            oidc_binding_id=item.oidc_binding_id,
            source_ip=audit_context.source_ip,
            payload=said.payload,
            repository_id=ci.repository_id,
            run_id=ci.run_id,
            token_id=ci.token_id,
            **plain,
        )

    def _envelope(self, event: str, item: ImportItem) -> _ImportedEnvelope:
        name, raw = _raw_envelope(item)
        key = (event, raw)
        known = self._said.get(key)
        if known is None:
            known = _read_envelope(event, name, raw)
            if len(raw) <= MEMO_BYTES_MAX:
                _remember(self._said, key, known)
        return known

    def _audit_context(self, item: ImportItem, ci_field: str | None) -> AuditContext:
        key = (
            item.verdict_source,
            item.actor_tenant_id,
            item.actor,
            item.actor_source,
            item.oidc_binding_id,
            item.source_ip,
            ci_field,
        )
        known = self._stamps.get(key)
        if known is None:
            known = _read_audit_context(item, self.audit_context, ci_field)
            _remember(self._stamps, key, known)
        return known


def _remember(memo: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(memo) >= MEMO_MAX:
        memo.clear()
    memo[key] = value


def _ci_field(item: ImportItem, ci: VerifiedCi | None) -> str | None:
    """The first field of `item` that only rows of a verified CI job have, or None."""
    if ci is not None:
        return "ci"
    return next((name for name in CiColumns._fields if getattr(item, name) is not None), None)


def _ci_columns(item: ImportItem, ci: VerifiedCi | None) -> CiColumns:
    """The columns as `item` gives them, or else from `ci`. Raises RowRefused.

    If both are given they must agree: a filter must find what the payload shows.
    """
    given = CiColumns(item.repository_id, item.run_id, item.token_id)
    derived = ci_columns(ci)
    if given in {NO_CI_COLUMNS, derived}:
        return derived
    for name, text in given._asdict().items():
        _check_text(name, text)
        claim = getattr(ci, _CI_MEMBERS[name], None)
        if text is not None and claim and text != claim:
            raise RowRefused(f"{name} must be as ci in the payload says, or left out")
    return CiColumns(*(text or claim for text, claim in zip(given, derived, strict=True)))


def _read_audit_context(item: ImportItem, own: AuditContext, ci_field: str | None) -> AuditContext:
    """The audit context that `item` states, or else `own`. Raises RowRefused.

    An actor requires an actor source, and only a CI job may have the claims of a CI token.
    """
    for column in ("actor", "actor_source", "actor_tenant_id", "oidc_binding_id", "source_ip"):
        _check_text(column, getattr(item, column))
    is_ci_job = _OIDC_SOURCE.fullmatch(item.actor_source or "") is not None
    if item.actor is None:
        if item.actor_source is not None or item.actor_tenant_id is not None:
            raise RowRefused("actor_source and actor_tenant_id need an actor")
    elif item.actor_source not in ACTOR_SOURCES and not is_ci_job:
        known = ", ".join(ACTOR_SOURCES)
        raise RowRefused(f"actor_source must be one of {known} or oidc_<provider>")
    if ci_field is not None and not is_ci_job:
        raise RowRefused(f"{ci_field} is only for rows whose actor_source is oidc_<provider>")
    return AuditContext(
        actor=item.actor or own.actor,
        actor_source=item.actor_source or own.actor_source,
        verdict_source=_verdict_source(item.verdict_source) or own.verdict_source,
        actor_tenant_id=item.actor_tenant_id if item.actor else own.actor_tenant_id,
        source_ip=item.source_ip,
    )


def _verdict_source(text: str | None) -> VerdictSource | None:
    if text is not None and text not in tuple(VerdictSource):
        raise RowRefused(f"verdict_source must be one of {', '.join(VerdictSource)}")
    return None if text is None else VerdictSource(text)


def _check_text(name: str, text: str | None) -> None:
    if text is not None:
        _CHECKS[name](text)


def _raw_envelope(item: ImportItem) -> tuple[str, bytes]:
    """The column that holds the envelope, and its JSON; without one the envelope is empty."""
    payload, envelope = bytes(item.payload), bytes(item.envelope)
    if payload in _NO_ENVELOPE:
        return ("payload", b"{}") if envelope in _NO_ENVELOPE else ("envelope", envelope)
    if envelope not in _NO_ENVELOPE:
        raise RowRefused("payload and envelope are two names of one thing: give one of them")
    return "payload", payload


_BESIDE: Final = {"ci": VerifiedCi, "admission": Admission}
"""What a payload may have beside the keys of its envelope; `admission` only if that allows."""


def _as_payload(envelope: type[Envelope]) -> type[msgspec.Struct]:
    """`envelope` as in a payload, with what may accompany its keys."""
    names = _BESIDE if envelope.decision is Decision.ALLOWED else ("ci",)
    return msgspec.defstruct(
        envelope.__name__,
        [(name, _BESIDE[name] | msgspec.UnsetType, msgspec.UNSET) for name in names],
        bases=(envelope,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


_envelope_decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    event: msgspec.json.Decoder(_as_payload(envelope)) for event, envelope in ENVELOPES.items()
}


def _read_envelope(event: str, name: str, raw: bytes) -> _ImportedEnvelope:
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
    keys = {key: said for key, said in msgspec.to_builtins(envelope).items() if key not in _BESIDE}
    return _ImportedEnvelope(
        envelope=envelope,
        reason=decision_reason(keys),
        payload=compact(envelope),
        ci=envelope.ci or None,
    )
