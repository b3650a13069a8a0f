"""Which values of claims are kept of the tokens that a binding admits."""

from datetime import date, timedelta

from service.ci.verifier.seen_claims import OTHERS, VALUES_MAX, values_since, with_tokens

DAY = date(2026, 11, 1)


def test_values_are_forgotten_after_90_days():
    old = with_tokens(None, {"ref": ["old", "kept"]}, DAY)
    kept = with_tokens(old, {"ref": ["kept"]}, DAY + timedelta(days=60))

    after = with_tokens(kept, {"ref": ["new"]}, DAY + timedelta(days=91))

    assert after == {"ref": {"kept": "2026-12-31", "new": "2027-01-31"}}


def test_many_values_are_known_to_be_more():
    seen = with_tokens(None, {"ref": [f"r{number}" for number in range(VALUES_MAX + 3)]}, DAY)

    assert len(seen["ref"]) == VALUES_MAX + 1
    assert OTHERS in seen["ref"]
    assert values_since(seen, "ref", DAY) is None


def test_an_absent_claim_is_no_value_to_narrow_by():
    seen = with_tokens(None, {"environment": ["production", OTHERS]}, DAY)

    assert values_since(seen, "environment", DAY) is None
    assert values_since(with_tokens(None, {"ref": ["a"]}, DAY), "ref", DAY) == ["a"]
    assert values_since(None, "ref", DAY) is None
