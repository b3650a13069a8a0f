"""Changes as forms spell them: what becomes of the policy, and every error at its field."""

import json

import pytest

from service.packages.policy.document import DOCUMENT_EXAMPLE, RULES_MAX, parse_policy, to_json
from service.packages.policy.model import NO_POLICY, InstallPolicy, PolicyMode
from service.pages.policy.edits import ANYWHERE, Edit, EditRefused, propose
from service.pages.policy.policy_page import document_text

EXAMPLE = parse_policy(DOCUMENT_EXAMPLE)


def made(kind: str, policy: InstallPolicy = EXAMPLE, **given: str) -> InstallPolicy:
    return propose(Edit(kind, given), policy)


def rule(**given: str) -> dict[str, str]:
    """The fields of a rule's form."""
    return {"ecosystem": "npm", "package": "x", "versions": "", "id": "", "reason": ""} | given


def faults(kind: str, policy: InstallPolicy = EXAMPLE, **given: str) -> dict[str, list[str]]:
    with pytest.raises(EditRefused) as refused:
        made(kind, policy, **given)
    return dict(refused.value.faults)


def test_a_rule_is_added_behind_the_others():
    policy = made("add_deny", **rule(package="lodash", versions=" <4 \r\n\r\n>=5 <6 "))

    assert policy.deny[:-1] == EXAMPLE.deny
    assert policy.deny[-1].texts == ("<4", ">=5 <6")
    assert policy.deny[-1].reason is None
    assert policy.deny[-1].rule_id == "npm:lodash@<4 || >=5 <6"
    assert made("add_allow", **rule()).allow[-1].texts == ()


def test_an_allow_rule_may_be_for_what_is_withdrawn():
    policy = made("add_allow", **rule(withdrawn="true"))

    assert (policy.allow[-1].withdrawn, policy.allow[0].withdrawn) == (True, False)
    assert parse_policy(to_json(policy)) == policy
    assert not made("add_allow", **rule(withdrawn="")).allow[-1].withdrawn


def test_first_party_packages_are_added():
    policy = made(
        "add_first_party", ecosystem="pypi", package="Acme_*", registry=" pypi.acme.example "
    )

    assert to_json(policy)["first_party"][-1] == {
        "ecosystem": "pypi",
        "package": "acme-*",
        "registry": "pypi.acme.example",
    }


def test_every_field_at_fault_is_named_at_once():
    """A person corrects them together."""
    found = faults(
        "add_deny",
        **rule(package="not a name!", versions="not a range", id="left-pad-old", reason="a\tb"),
    )

    assert set(found) == {"package", "versions", "id", "reason"}
    assert found["id"] == ["is the name of another rule"]
    assert all("deny[" not in text for texts in found.values() for text in texts)


def test_what_must_not_be_empty_says_so():
    assert faults("add_deny", **rule(package=" ", versions="!!")) == {
        "package": ["must not be empty"],
        "versions": ["not a range such as ^1.2.0, <2 or 1.x: !!"],
    }
    assert set(faults("add_first_party", ecosystem="npm", package="", registry="")) == {
        "package",
        "registry",
    }


def test_an_ecosystem_that_is_none_is_a_fault_of_its_field():
    """A form that a script made up gets no other answer."""
    assert set(faults("add_deny", **rule(ecosystem="cargo"))) == {"ecosystem"}


def test_too_many_rules_are_a_fault_of_no_field():
    """No field of the form could be corrected."""
    full = parse_policy(
        {"deny": [{"ecosystem": "npm", "package": f"p{number}"} for number in range(RULES_MAX)]}
    )

    assert set(faults("add_deny", full, **rule())) == {ANYWHERE}


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        ("first_party", "npm:@acme/* from npm.acme.example"),
        ("deny", "left-pad-old"),
        ("allow", "pypi:requests@==2.32.3"),
    ],
)
def test_an_entry_is_removed_by_its_name(part, entry):
    """Not by its place, which another change may have moved."""
    policy = made("remove", part=part, entry=entry)

    assert getattr(policy, part) == ()
    assert set(faults("remove", policy, part=part, entry=entry)) == {ANYWHERE}
    assert set(faults("remove", part="mode", entry=entry)) == {ANYWHERE}


def test_mode_and_cooldown():
    assert made("mode", mode="audit").mode is PolicyMode.AUDIT
    assert set(faults("mode", mode="off")) == {"mode"}
    changed = made("cooldown", min_age_days=" 14 ", exempt="npm:@acme/*\r\npypi:Acme_*\r\n")
    assert to_json(changed)["cooldown"] == {
        "min_age_days": 14,
        "exempt": [
            {"ecosystem": "npm", "package": "@acme/*"},
            {"ecosystem": "pypi", "package": "acme-*"},
        ],
    }
    assert made("cooldown", min_age_days="", exempt="").cooldown is None
    cooldown = made("cooldown", min_age_days="7", exempt="", cure="true").cooldown
    assert cooldown is not None
    assert cooldown.cure


def test_the_trust_rule():
    exempt = "npm:semver 6.3.1 || 5.x\r\n\r\npypi:Acme_*"
    changed = made("trust", action="mark", ignore_after_days=" 30 ", exempt=exempt)
    assert to_json(changed)["trust"] == {
        "action": "mark",
        "ignore_after_days": 30,
        "exempt": [
            {"ecosystem": "npm", "package": "semver", "versions": ["6.3.1 || 5.x"]},
            {"ecosystem": "pypi", "package": "acme-*", "versions": []},
        ],
    }
    again = made("trust", changed, action="", ignore_after_days="", exempt="")
    assert again == EXAMPLE
    found = faults("trust", action="refuse", ignore_after_days="x", exempt="npm:a ?\nsemver")
    assert set(found) == {"ignore_after_days", "exempt"}
    assert [text.partition(": ")[0] for text in found["exempt"]] == ["npm:a ?", "semver"]


@pytest.mark.parametrize("days", ["0", "-1", "1.5", "3651", "seven", "١٤", "9" * 99])
def test_days_are_a_whole_number(days):
    found = faults("cooldown", min_age_days=days, exempt="requests\nnpm:a b\nnpm:fine")

    assert "whole number" in found["min_age_days"][0]
    assert [text.partition(": ")[0] for text in found["exempt"]] == ["requests", "npm:a b"]


def test_exempt_packages_need_a_cooldown():
    """Otherwise they would be dropped silently."""
    assert set(faults("cooldown", min_age_days="", exempt="npm:x")) == {"min_age_days"}
    assert set(faults("cooldown", min_age_days="", exempt="", cure="true")) == {"min_age_days"}


@pytest.mark.parametrize("policy", [NO_POLICY, EXAMPLE])
def test_the_document_of_the_page_is_the_policy(policy):
    text = document_text(policy)

    assert json.loads(text) == to_json(policy)
    assert made("document", document=text) == policy
    assert text.count("\n") >= len(policy.deny) + len(policy.allow)


def test_all_entries_of_a_document_at_fault_are_named():
    entries = [
        {"ecosystem": "npm", "package": "a"},
        {"ecosystem": "npm", "package": "b", "versions": "!!"},
        {"ecosystem": "npm", "package": "c"},
        {"ecosystem": "npm", "package": ""},
    ]
    document = {"mode": "off", "deny": entries, "allow": entries[1:2], "cooldown": {}}
    found = faults("document", document=json.dumps(document))["document"]

    assert sorted(text.split(":")[0].split(".")[0] for text in found) == [
        "allow[0]",
        "cooldown",
        "deny[1]",
        "deny[3]",
        "mode",
    ]


@pytest.mark.parametrize(
    "document",
    ["", "[]", "{", '{"mode": "audit", "mode": "audit"}', '{"x": NaN}', '{"deny": 1}', "\ud800"],
)
def test_what_is_no_document_is_refused(document):
    assert len(faults("document", document=document)["document"]) == 1


def test_a_document_with_unknown_parts_is_refused():
    """A misspelt part would have no effect."""
    (fault,) = faults("document", document='{"denny": []}')["document"]

    assert "denny" in fault
