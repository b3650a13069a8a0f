"""decision_reason: an envelope in at most 256 code points, always valid JSON."""

import json
from datetime import date, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model import decision_reason as decision_reason_module
from analytics.model.decision_reason import DECISION_REASON_MAX, compact, decision_reason
from analytics.model.envelopes import ENVELOPES, OidcBindingRevoked
from analytics.model.events import Envelope
from analytics.model.filters import BOUND_PARAMETERS, FILTER_COLUMNS
from analytics.model.log_envelopes import AuditExported, AuditPruned

COSTLY = st.sampled_from('"\\/\n\r\t\x00\x1f\x7f\u2028…é漢😀👩🏽\u200d')
TEXT = st.text(
    st.one_of(COSTLY, st.characters(exclude_categories=["Cs"])), max_size=60
) | st.builds(lambda piece, times: piece * times, st.text(COSTLY, min_size=1), st.just(300))


def _values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case msgspec.inspect.StrType():
            return TEXT
        case msgspec.inspect.IntType():
            return st.integers(0, 2**63 - 2)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType():
            return st.sampled_from(kind.values)
        case msgspec.inspect.ListType():
            return st.lists(_values(kind.item_type), max_size=9)
        case msgspec.inspect.DictType():
            return st.dictionaries(TEXT, _values(kind.value_type), max_size=9)
        case msgspec.inspect.StructType():
            return st.fixed_dictionaries({each.name: _values(each.type) for each in kind.fields})
        case msgspec.inspect.UnionType():
            return st.one_of(*map(_values, kind.types))
        case _:
            raise NotImplementedError(kind)


@st.composite
def envelope_of(draw: st.DrawFn, model: type[Envelope]) -> dict[str, Any]:
    keys = {
        field.name: draw(_values(field.type)) for field in msgspec.inspect.type_info(model).fields
    }
    if "counter_after" in keys:
        keys["counter_after"] = keys["counter_before"] + 1
    if "published_at" in keys:
        keys["published_at"] = "2026-01-31T08:00:00.123456+00:00"
    return msgspec.to_builtins(model(**keys))


def any_envelope() -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(list(ENVELOPES.values())).flatmap(envelope_of)


@given(any_envelope())
def test_whatever_an_envelope_holds_its_reason_fits_parses_and_keeps_its_keys(keys):
    """The column takes 256 characters; readers parse it as JSON."""
    reason = decision_reason(keys)
    parsed = json.loads(reason)

    assert len(reason) <= 256
    assert [key for key in parsed if key != "truncated"] == list(keys)


@given(any_envelope())
def test_it_says_truncated_exactly_when_something_was_lost(keys):
    """Without the flag the values are exact."""
    parsed = json.loads(decision_reason(keys))

    if len(compact(keys)) <= 256:
        assert parsed == keys
    else:
        assert parsed.pop("truncated") is True
        assert parsed != keys


@given(any_envelope())
def test_numbers_and_booleans_are_never_altered(keys):
    """Text can be shortened; a number with digits missing would be another number."""
    parsed = json.loads(decision_reason(keys))

    for key, value in keys.items():
        if not isinstance(value, str | list | dict):
            assert parsed[key] == value


@given(any_envelope())
def test_a_shortened_string_is_a_beginning_and_an_ellipsis(keys):
    parsed = json.loads(decision_reason(keys))

    for key, value in keys.items():
        if isinstance(value, str) and parsed[key] != value:
            assert parsed[key].endswith("…")
            assert value.startswith(parsed[key][:-1])


def _reason_of_length(length: int, filler: str) -> dict[str, Any]:
    return {"registry": filler * (length - len('{"registry":""}'))}


@pytest.mark.parametrize("filler", ["a", "漢", "😀"])
def test_256_code_points_fit_and_257_do_not(filler):
    """The limit counts characters, not bytes and not UTF-16 units."""
    assert DECISION_REASON_MAX == 256
    fits = _reason_of_length(256, filler)
    too_long = _reason_of_length(257, filler)

    assert decision_reason(fits) == compact(fits)
    assert len(decision_reason(fits)) == 256
    assert json.loads(decision_reason(too_long))["truncated"] is True
    assert len(decision_reason(too_long)) == 256


def test_a_reason_is_compact_and_not_escaped_to_ascii():
    """Escapes and blanks would cost what little room there is."""
    assert decision_reason({"registry": "npm é", "n": 1}) == '{"registry":"npm é","n":1}'


def test_the_longest_strings_give_way_first():
    """Ids stay whole while a long subject shrinks."""
    revoked = OidcBindingRevoked(
        binding_id="obind_7f3k9m2p4q8r1s5t",
        revoked_reason="leaked in " + "x" * 1000,
        by_user_id="system:admin-token",
    )

    parsed = json.loads(decision_reason(msgspec.to_builtins(revoked)))

    assert parsed["binding_id"] == revoked.binding_id
    assert parsed["by_user_id"] == revoked.by_user_id
    assert parsed["revoked_reason"].startswith("leaked in x")
    assert parsed["revoked_reason"].endswith("x…")


def test_an_export_by_every_filter_there_is_still_has_a_reason():
    """The names of all parameters alone take more than the column; the export must not fail."""
    names = [*FILTER_COLUMNS, *BOUND_PARAMETERS, "order"]
    export = AuditExported(
        export_id="exp_7f3k9m2p4q8r1s5t",
        format="csv",
        filters={name: ["value"] for name in names},
        rows=10**9,
    )

    parsed = json.loads(decision_reason(msgspec.to_builtins(export)))

    assert parsed["truncated"] is True
    assert parsed["rows"] == 10**9
    assert list(parsed["filters"]) == names[: len(parsed["filters"])]


def test_a_shape_without_any_room_is_refused():
    """Better no row, and with it no change, than a reason that does not parse."""
    with pytest.raises(ValueError, match="cannot fit"):
        decision_reason({f"key_{number}": True for number in range(40)})


def test_however_many_entries_there_are_few_forms_are_tried(monkeypatch):
    """Years of pruned days are recorded on the event loop, in a write transaction."""
    tried = []
    monkeypatch.setattr(
        decision_reason_module, "compact", lambda value: tried.append(1) or compact(value)
    )
    days = [str(date(1990, 1, 1) + timedelta(days=n)) for n in range(2_000)]
    pruned = AuditPruned(first_day=days[0], last_day=days[-1], days=days, rows=1)

    parsed = json.loads(decision_reason(msgspec.to_builtins(pruned)))

    assert parsed["days"] == days[: len(parsed["days"])]
    assert len(parsed["days"]) > 3
    assert len(tried) < 16
