"""One package has one canonical name, and a pattern reaches every spelling of it."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import InvalidPackageName
from service.packages.names import NamePattern, PatternIndex, canonical_name, parse_pattern

_PYPI_NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?", fullmatch=True)
_NPM_NAMES = st.from_regex(r"(@[a-z0-9-]{1,9}/)?[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)


@given(_PYPI_NAMES)
def test_a_pypi_name_is_normalised_as_pip_does(name: str) -> None:
    """PEP 503, by the library that pip carries."""
    assert canonical_name(Ecosystem.PYPI, name) == canonicalize_name(name)
    assert canonical_name(Ecosystem.PYPI, canonicalize_name(name)) == canonicalize_name(name)


@given(_PYPI_NAMES, st.sampled_from(["-", "_", ".", "--", "-_.", "._"]))
def test_no_spelling_of_a_name_gets_past_its_rule(name: str, separator: str) -> None:
    respelled = re.sub(r"[-_.]+", separator, name).swapcase()

    pattern = parse_pattern(Ecosystem.PYPI, respelled)

    assert pattern.is_exact
    assert does_match(pattern, canonical_name(Ecosystem.PYPI, name))


@given(_NPM_NAMES.filter(lambda name: name not in {"node_modules", "favicon.ico"}))
def test_an_npm_name_is_itself(name: str) -> None:
    """Capitals are other names to npm."""
    assert canonical_name(Ecosystem.NPM, name) == name
    assert not does_match(parse_pattern(Ecosystem.NPM, name), name + "x")


@pytest.mark.parametrize(
    "name",
    ["left-pad", "@scope/name", "JSONStream", "@a/_b", "-", "a~b", "@types/node", "lodash.merge"],
)
def test_names_that_npm_has(name: str) -> None:
    """Old names have capitals and odd characters."""
    assert canonical_name(Ecosystem.NPM, name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "_private",
        "@scope",
        "@scope/",
        "@/name",
        "@scope/.hidden",
        "@scope/..",
        "@.a/b",
        "@a/b/c",
        "a/b",
        "a b",
        " a",
        "a\n",
        "a%2fb",
        "ａbc",
        "nodė",
        "node_modules",
        "favicon.ico",
        "a" * 215,
    ],
)
def test_what_is_no_npm_name(name: str) -> None:
    """Path tricks and look-alikes are among them."""
    with pytest.raises(InvalidPackageName):
        canonical_name(Ecosystem.NPM, name)


@pytest.mark.parametrize(
    "name",
    ["", "-a", "a-", ".", "..", "a b", "a/b", "a\n", "\u212a", "\u017f", "ａ", "a%2e", "a" * 215],
)
def test_what_is_no_pypi_name(name: str) -> None:
    """Letters that only lower-casing makes ASCII (the Kelvin sign) among them."""
    with pytest.raises(InvalidPackageName):
        canonical_name(Ecosystem.PYPI, name)


@pytest.mark.parametrize(
    ("ecosystem", "pattern", "inside", "outside"),
    [
        ("pypi", "Acme_*", ["acme-", "acme-auth", "acme-a-b"], ["acme", "acmeauth", "my-acme-x"]),
        ("pypi", "*.Internal", ["a-internal"], ["internal", "a-internal-b"]),
        ("pypi", "acme*auth*", ["acmeauth", "acme-x-auth-y"], ["acme", "auth-acme"]),
        ("npm", "@acme/*", ["@acme/a", "@acme/a.b"], ["@acme2/a", "acme", "@ACME/a"]),
        ("npm", "acme-*-x", ["acme-1-x", "acme--x"], ["acme-x", "@a/acme-1-x"]),
        ("npm", "*", ["a", "@a/b"], []),
        ("npm", "ab*ba", ["abba", "abxba"], ["aba"]),
        ("npm", "a*b*b", ["abb", "axbxb"], ["ab"]),
    ],
)
def test_what_a_glob_matches(
    ecosystem: Ecosystem, pattern: str, inside: list[str], outside: list[str]
) -> None:
    """`*` is any characters; no part of the name is used twice."""
    glob = parse_pattern(Ecosystem(ecosystem), pattern)

    assert [name for name in [*inside, *outside] if does_match(glob, name)] == inside


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_a_glob_matches_what_the_regular_expression_does(pattern: str, name: str) -> None:
    """The same by another way."""
    if "*" not in pattern:
        return
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None

    assert does_match(parse_pattern(Ecosystem.NPM, pattern), name) is expected


@pytest.mark.parametrize("pattern", ["a?*", "[a]*", "a *", "*" * 9, "a" * 214 + "*", "é*", "a%*"])
def test_a_pattern_that_would_never_match_is_refused(pattern: str) -> None:
    """Only `*` is a wildcard."""
    for ecosystem in Ecosystem:
        with pytest.raises(InvalidPackageName):
            parse_pattern(ecosystem, pattern)


def does_match(pattern: NamePattern, name: str) -> bool:
    """Whether an index of this pattern alone has the name."""
    return PatternIndex([(pattern, None)]).is_match(name)


@given(st.lists(st.text("ab*", min_size=1, max_size=5), max_size=8), st.text("ab", max_size=6))
def test_patterns_together_match_what_each_matches(patterns: list[str], name: str) -> None:
    """In the order of the patterns, names and globs alike: the first rule decides."""
    read = [(parse_pattern(Ecosystem.NPM, text), text) for text in patterns]
    index = PatternIndex(read)

    matching = [text for pattern, text in read if does_match(pattern, name)]
    assert index.matches(name) == matching
    assert index.is_match(name) is bool(matching)


class CountedName(str):
    """A name that counts how many of its characters are read."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        for character in super().__iter__():
            CountedName.read += 1
            yield character


@pytest.mark.parametrize("patterns", [1, 300])
def test_each_character_of_a_name_is_read_once_for_all_patterns(patterns: int) -> None:
    """A query names thousands of packages, and a policy has hundreds of patterns."""
    texts = [f"*a{number}*b*" for number in range(patterns)]
    index = PatternIndex((parse_pattern(Ecosystem.NPM, text), text) for text in texts)
    name = CountedName("x" * 214)
    CountedName.read = 0

    assert not index.is_match(name)
    assert CountedName.read <= len(name)
