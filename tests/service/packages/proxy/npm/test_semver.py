"""Versions are ordered as Semantic Versioning orders them."""

from itertools import pairwise

import pytest

from service.packages.proxy.npm.tags import parse_precedence

# The first eight are the specification's own example (§11).
ASCENDING = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1-0",
    "1.0.1-1",
    "1.0.1-10",
    "1.0.1--1",
    "1.0.1-1a",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0-0",
    "2.0.0",
    "10.0.0",
]


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(ASCENDING)))
def test_versions_are_ordered(lower: str, higher: str) -> None:
    low, high = parse_precedence(lower), parse_precedence(higher)

    assert low is not None
    assert high is not None
    assert low < high


def test_build_metadata_has_no_part_in_it() -> None:
    """Semantic Versioning, §10."""
    assert parse_precedence("1.0.0+1") == parse_precedence("1.0.0+2.b") == parse_precedence("1.0.0")


OTHER_FORMS = [
    "1",
    "1.0",
    "v1.0.0",
    "01.0.0",
    "1.0.0-",
    "1.0.0-01",
    "1.0.0-a..b",
    "1.0.0+",
    "١.0.0",
]


@pytest.mark.parametrize(
    "text", [*OTHER_FORMS, "", "١.0.0", "1.0.0 ", "1.0.0-" + "a" * 251, "1" * 17 + ".0.0"]
)
def test_other_forms_have_no_order(text: str) -> None:
    assert parse_precedence(text) is None
