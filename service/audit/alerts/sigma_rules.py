"""Sigma rules as alert rules: the part of the format that filters of the audit log can say.

One rule, or one with a correlation of type `event_count`. Fields are columns as in the API's rows,
or filters. Values are compared exactly, as with Sigma's modifier `cased`. Imported where one is
parsed: pySigma, of the extra `sigma`, takes half a second.
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import yaml
from sigma.collection import SigmaCollection
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionIdentifier,
    ConditionItem,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.correlations import (
    SigmaCorrelationCondition,
    SigmaCorrelationConditionOperator,
    SigmaCorrelationRule,
    SigmaCorrelationType,
)
from sigma.exceptions import SigmaError
from sigma.rule import SigmaRule
from sigma.types import SigmaNumber, SigmaString, SpecialChars

from analytics.model.filters import literal
from analytics.model.schema import FILTER_PARAMETERS, WIRE_COLUMNS
from service.core.errors import Invalid

_Condition = (
    ConditionItem
    | ConditionIdentifier
    | ConditionFieldEqualsValueExpression
    | ConditionValueExpression
    | None
)

_FILTER_OF: Final = {
    name: parameter.name
    for parameter in FILTER_PARAMETERS
    for name in (
        parameter.name,
        *(wire for wire, column in WIRE_COLUMNS.items() if column == parameter.column),
    )
}
_MORE: Final = {SigmaCorrelationConditionOperator.GTE: 0, SigmaCorrelationConditionOperator.GT: 1}
"""What an operator adds to its count."""
NESTING_MAX: Final = 32
_BEGINS: Final = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_ENDS: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
_WRONG_TYPES: Final = (ValueError, TypeError, KeyError, AttributeError)
"""What pySigma raises for values of other types than it expects."""


def parse_sigma(text: str) -> dict[str, Any]:
    """The members of an alert rule that the Sigma rule in `text` says. Raises Invalid."""
    try:
        _check_tokens(text)
        parsed = SigmaCollection.from_yaml(text).rules
        rules = [rule for rule in parsed if isinstance(rule, SigmaRule)]
        bursts = [rule for rule in parsed if isinstance(rule, SigmaCorrelationRule)]
        if len(rules) != 1 or len(bursts) > 1 or len(rules[0].detection.parsed_condition) != 1:
            raise _invalid("one rule with one condition is read, and at most one correlation")
        filters = _filters(rules[0].detection.parsed_condition[0].parsed)
        return {"query": urlencode(filters, doseq=True)} | (_burst(bursts[0]) if bursts else {})
    except (SigmaError, yaml.YAMLError, *_WRONG_TYPES, RecursionError) as error:
        raise _invalid(" ".join(str(error).split())[:200]) from error


def _check_tokens(text: str) -> None:
    """Raises Invalid for what would take long to read."""
    depth = 0
    for token in yaml.scan(text):
        # Before anything follows them: a few lines of nested ones are millions of values.
        if isinstance(token, yaml.AnchorToken | yaml.AliasToken):
            raise _invalid("a rule with anchors is not read: write values in full")
        # The time to read a token grows with the number of values that are open.
        depth += isinstance(token, _BEGINS) - isinstance(token, _ENDS)
        if depth > NESTING_MAX:
            raise _invalid(f"values are nested more than {NESTING_MAX} deep")


def _burst(rule: SigmaCorrelationRule) -> dict[str, Any]:
    """What a correlation says."""
    grouped = [_filter_of(name) for name in rule.group_by or ()]
    condition = rule.condition
    if (
        rule.type is not SigmaCorrelationType.EVENT_COUNT
        or len(grouped) > 1
        or not isinstance(condition, SigmaCorrelationCondition)
        or condition.op not in _MORE
        or condition.count is None
    ):
        raise _invalid("event_count with gte or gt and at most one field in group-by is read")
    if rule.timespan.seconds % 60:
        raise _invalid("timespan must be whole minutes, such as 10m")
    return {
        "at_least": condition.count + _MORE[condition.op],
        "window": f"{rule.timespan.seconds // 60}m",
        "per": grouped[0] if grouped else None,
    }


def _filters(condition: _Condition) -> dict[str, list[str]]:
    """The filters that say the same as `condition`: a conjunction, of alternatives of one field."""
    filters: dict[str, list[str]] = {}
    for part in _conjuncts(condition):
        is_negated = isinstance(part, ConditionNOT)
        inner = part.args[0] if isinstance(part, ConditionNOT) else part
        named = [_equality(each) for each in _alternatives(inner)]
        fields = {field for field, _ in named}
        if len(fields) != 1:
            raise _invalid("alternatives of several fields are not read: write two rules")
        values = filters.setdefault(fields.pop(), [])
        if any(not value.startswith("!") for value in values) and not is_negated:
            raise _invalid("a field is asked for twice: give its values in one list")
        values += [f"!{value}" if is_negated else value for _, value in named]
    return filters


def _conjuncts(condition: _Condition) -> Iterator[_Condition]:
    if isinstance(condition, ConditionAND):
        for part in condition.args:
            yield from _conjuncts(part)
    else:
        yield condition


def _alternatives(condition: _Condition) -> Iterator[_Condition]:
    if isinstance(condition, ConditionOR) or (
        isinstance(condition, ConditionAND) and len(condition.args) == 1
    ):
        for part in condition.args:
            yield from _alternatives(part)
    else:
        yield condition


def _equality(condition: _Condition) -> tuple[str, str]:
    """The filter and its value of `field: value` or `field|startswith: value`."""
    if not isinstance(condition, ConditionFieldEqualsValueExpression):
        raise _invalid("only fields with values, and, or, not are read")
    value = condition.value
    text, *rest = value.s if isinstance(value, SigmaString) and value.s else (None,)
    if isinstance(value, SigmaNumber):
        text = str(value)
    if not isinstance(text, str) or rest not in ([], [SpecialChars.WILDCARD_MULTI]):
        raise _invalid("values are whole, or begin with a text (startswith)")
    return _filter_of(condition.field), literal(text) + ("*" if rest else "")


def _filter_of(field: str) -> str:
    found = _FILTER_OF.get(field)
    if found is None:
        raise _invalid(f"the field {field[:64]} is no filter: fields are {', '.join(_FILTER_OF)}")
    return found


def _invalid(text: str) -> Invalid:
    return Invalid(f"sigma: {text}", field="sigma")
