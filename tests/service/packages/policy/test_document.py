"""A policy and its document say the same; every error names its field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Invalid
from service.packages.policy import document, model
from service.packages.policy.document import (
    DOCUMENT_EXAMPLE,
    RULE_ID_MAX,
    PolicyDocument,
    decode_document,
    encode_document,
    parse_policy,
    to_json,
)
from service.packages.policy.model import NO_POLICY, PART_LABELS
from service.packages.versions import VersionRange, parse_range

RULE = {"ecosystem": "npm", "package": "left-pad"}


def test_the_example_is_a_policy() -> None:
    shown = to_json(parse_policy(DOCUMENT_EXAMPLE))

    assert shown["deny"][0]["id"] == "left-pad-old"
    assert shown["allow"][0]["id"] == "pypi:requests@==2.32.3"
    assert parse_policy(shown) == parse_policy(DOCUMENT_EXAMPLE)


def test_an_allow_rule_for_what_is_withdrawn_says_so() -> None:
    """Nodes of earlier versions cannot read a policy with one."""
    plain, withdrawn = RULE | {"id": "a"}, RULE | {"id": "b", "withdrawn": True}
    policy = parse_policy({"allow": [plain, withdrawn]})

    assert [rule.withdrawn for rule in policy.allow] == [False, True]
    assert ["withdrawn" in entry for entry in to_json(policy)["allow"]] == [False, True]
    assert decode_document(encode_document(policy)) == policy
    assert policy.lines["allow"] == ["a: npm:left-pad", "b: npm:left-pad, also if withdrawn"]
    with pytest.raises(Invalid, match="withdrawn"):
        parse_policy({"deny": [withdrawn]})


def test_the_document_has_the_parts_of_the_policy_in_their_order() -> None:
    assert list(PART_LABELS) == list(PolicyDocument.__struct_fields__)


@pytest.mark.parametrize(
    ("name", "rule_id"),
    [("a" * 96, f"npm:{'a' * 96}"), ("a" * 97, f"npm:{'a' * 95}…")],
)
def test_the_id_of_a_rule_is_what_it_names_up_to_the_limit(name: str, rule_id: str) -> None:
    """It is in audit rows."""
    (rule,) = parse_policy({"deny": [{"ecosystem": "npm", "package": name}]}).deny

    assert len(rule_id) == RULE_ID_MAX
    assert rule.rule_id == rule_id


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        (
            {"deny": [RULE, RULE | {"ecosystem": "\ud800"}], "allow": [{"ecosystem": "\ud800"}]},
            "deny[1].ecosystem",
            "must be text without lone surrogates",
        ),
        ({"deny": [RULE | {"\ud800": 1}]}, "deny[0].\ud800", "is an unknown field"),
    ],
)
def test_text_that_cannot_be_stored_is_refused_by_the_first_field_that_has_it(
    document: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(Invalid) as refused:
        parse_policy(document)

    assert refused.value.field == field
    assert str(refused.value) == f"{field}: {text}"


def test_an_empty_document_is_no_policy() -> None:
    assert parse_policy({}) == NO_POLICY


def test_ranges_of_a_stored_policy_are_read_once_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages only show them, and 5,800 take 60 ms."""
    stored = encode_document(parse_policy({"deny": [RULE | {"versions": ["<1.2", ">=2"]}]}))
    read: list[str] = []

    def noted(ecosystem: Ecosystem, text: str) -> VersionRange:
        read.append(text)
        return parse_range(ecosystem, text)

    for module in (model, document):
        monkeypatch.setattr(module, "parse_range", noted)
    policy = decode_document(stored)
    assert encode_document(policy) == stored
    assert read == []
    assert len(list(policy.deny[0].intervals())) == 2
    assert read == ["<1.2", ">=2"]


_NAMES = st.sampled_from(["Left_Pad", "acme-*", "*", "a.b"])
_RULES = st.fixed_dictionaries(
    {"ecosystem": st.sampled_from(["npm", "pypi"]), "package": _NAMES},
    optional={
        "versions": st.sampled_from(["1.0.0", ["1.0", ">=2"], []]),
        "reason": st.sampled_from(["because", "weil — darum"]),
    },
)


@given(st.lists(_RULES, max_size=3), st.sampled_from(["enforce", "audit"]))
def test_what_is_stored_is_what_was_parsed(rules: list[dict[str, Any]], mode: str) -> None:
    """A worker that loads the policy decides as the one that saved it."""
    numbered = [{**rule, "id": f"rule-{number}"} for number, rule in enumerate(rules)]
    policy = parse_policy({"deny": numbered, "mode": mode})

    assert decode_document(encode_document(policy)) == policy
    assert encode_document(decode_document(encode_document(policy))) == encode_document(policy)


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ([], None, "object"),
        ({"mod": "audit"}, None, "mod"),
        ({"mode": "off"}, "mode", "off"),
        ({"deny": {}}, "deny", "array"),
        ({"deny": [{"package": "a"}]}, "deny[0]", "ecosystem"),
        ({"deny": [{"ecosystem": "npm"}]}, "deny[0]", "package"),
        ({"deny": [RULE, RULE | {"ecosystem": "gem"}]}, "deny[1].ecosystem", "gem"),
        ({"deny": [RULE | {"packages": "b"}]}, "deny[0]", "packages"),
        ({"deny": [RULE | {"package": "a b"}]}, "deny[0].package", "npm name"),
        ({"deny": [RULE | {"package": "a?*"}]}, "deny[0].package", "pattern"),
        ({"deny": [RULE | {"package": "x" * 215}]}, "deny[0].package", "214"),
        ({"deny": [RULE | {"versions": "latest"}]}, "deny[0].versions", "range"),
        ({"deny": [RULE | {"versions": ["1.0.0", 2]}]}, "deny[0].versions[1]", "int"),
        ({"deny": [RULE | {"versions": ["1.0.0"] * 33}]}, "deny[0].versions", "32"),
        ({"deny": [RULE | {"versions": "1" * 257}]}, "deny[0].versions", "256"),
        ({"deny": [RULE | {"id": ""}]}, "deny[0].id", "100"),
        ({"deny": [RULE | {"id": "a\nb"}]}, "deny[0].id", "visible"),
        ({"deny": [RULE | {"reason": "x" * 257}]}, "deny[0].reason", "256"),
        ({"deny": [RULE | {"reason": "\u202eevil"}]}, "deny[0].reason", "visible"),
        ({"deny": [RULE], "allow": [RULE]}, "allow[0].id", "deny[0]"),
        ({"allow": [RULE] * 301}, "allow", "300"),
        ({"first_party": [RULE]}, "first_party[0]", "registry"),
        ({"first_party": [RULE | {"registry": " "}]}, "first_party[0].registry", "200"),
        ({"cooldown": {}}, "cooldown", "min_age_days"),
        ({"cooldown": {"min_age_days": 0}}, "cooldown.min_age_days", "1"),
        ({"cooldown": {"min_age_days": 3651}}, "cooldown.min_age_days", "3650"),
        ({"cooldown": {"min_age_days": True}}, "cooldown.min_age_days", "bool"),
        ({"cooldown": {"min_age_days": 7.5}}, "cooldown.min_age_days", "float"),
        ({"cooldown": {"min_age_days": 1e300}}, "cooldown.min_age_days", "3650"),
        ({"cooldown": {"min_age_days": float("inf")}}, "cooldown.min_age_days", "float"),
        (
            {"cooldown": {"min_age_days": 7, "exempt": [{"ecosystem": "pypi", "package": "-"}]}},
            "cooldown.exempt[0].package",
            "PyPI name",
        ),
    ],
)
def test_an_error_names_its_field(document: Any, field: str | None, said: str) -> None:
    """A person with 300 rules must find the one that is wrong."""
    with pytest.raises(Invalid) as refused:
        parse_policy(document)

    assert refused.value.field == field
    assert said in refused.value.text
    assert field is None or refused.value.text.startswith(f"{field}: ")


def test_a_document_has_a_size() -> None:
    """300 rules of long reasons are more than one request may carry."""
    rules = [RULE | {"id": str(number), "reason": "x" * 256} for number in range(300)]

    with pytest.raises(Invalid, match="65536 bytes"):
        parse_policy({"deny": rules})


def test_a_whole_number_is_an_integer_with_a_fraction_of_zero_too():
    """JSON Schema has it so, and the document of the API says `integer`."""
    assert parse_policy({"cooldown": {"min_age_days": 7.0}}) == parse_policy(
        {"cooldown": {"min_age_days": 7}}
    )
