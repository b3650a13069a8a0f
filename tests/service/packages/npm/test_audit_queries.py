"""Queries of `npm audit` are bounded by what it takes to compare their names."""

import gzip
import json

import pytest

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Invalid
from service.packages.names import parse_pattern
from service.packages.npm.audit_queries import (
    AT_ONCE_BYTES,
    DIFFERENT_CHARS_MAX,
    NAMES_MAX,
    is_short,
    public_query,
)

HIDDEN = (parse_pattern(Ecosystem.NPM, "@acme/*"), parse_pattern(Ecosystem.NPM, "own"))


def names(count: int) -> list[str]:
    """So many short names."""
    return [f"{number:x}" for number in range(count)]


def test_a_query_with_as_many_names_as_may_be_is_passed_on() -> None:
    some = names(1_000)
    each = dict.fromkeys(some, "1")
    tree = {
        "dependencies": {
            name: {"version": "1", "requires": each} for name in some[: NAMES_MAX // 1_000 - 1]
        }
    }

    passed = json.loads(public_query(json.dumps(tree).encode(), "", "audits", HIDDEN))

    assert passed == tree


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({name: ["1"] for name in names(NAMES_MAX + 1)}, "advisories/bulk"),
        ({"requires": dict.fromkeys(names(NAMES_MAX + 1), "1")}, "audits"),
        ({"install": [f"{name}@1" for name in names(NAMES_MAX + 1)]}, "audits/quick"),
        ({"a" * 200 + str(n): ["1"] for n in range(DIFFERENT_CHARS_MAX // 200)}, "advisories/bulk"),
    ],
    ids=["bulk", "full", "quick", "long names"],
)
def test_a_query_that_names_too_many_packages_is_refused(query: object, path: str) -> None:
    """610,610 names are 61 KB of gzip."""
    with pytest.raises(Invalid, match="audit parts of the project"):
        public_query(gzip.compress(json.dumps(query).encode()), "gzip", path, HIDDEN)


def test_only_a_short_query_is_read_in_the_event_loop() -> None:
    """By its unpacked size: gzip makes a thousand bytes of one."""
    short, long = b"{}", b"{}" + b" " * AT_ONCE_BYTES

    assert is_short(short, "identity")
    assert is_short(gzip.compress(short), " GZIP ")
    assert not is_short(long, "identity")
    assert not is_short(gzip.compress(long), "gzip")


@pytest.mark.parametrize("query", [b'{"a": ["\xff"]}', b"{", b"[" * 100_000, b""])
def test_what_is_no_json_is_refused(query: bytes) -> None:
    with pytest.raises(Invalid, match="the audit query cannot be read"):
        public_query(query, "", "advisories/bulk", HIDDEN)
