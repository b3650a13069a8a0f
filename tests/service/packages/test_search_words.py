"""Releases are read as pip, npm and the purl specification read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from analytics.model.ecosystems import Ecosystem
from analytics.model.filters import literal
from service.audit.readings import Reading
from service.packages.npm.versions import npm_spellings
from service.packages.search_words import READINGS_MAX, TEXT_MAX, package_readings
from tests.service.packages.node import ask_npm

_PYPI_NAMES = st.from_regex(r"[A-Za-z]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
_NPM_NAMES = st.from_regex(r"(@[a-z0-9-]{1,9}/)?[a-z][a-z0-9._-]{0,20}", fullmatch=True)
_RELEASES = st.lists(st.integers(0, 40), min_size=1, max_size=5).map(
    lambda n: ".".join(map(str, n))
)
_PYPI_VERSIONS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "1!"]),
        _RELEASES,
        st.sampled_from(["", "a1", "-rc.2", ".post3", "-4", ".dev5"]),
        st.sampled_from(["", "+local.1"]),
    ),
)
_NPM_VERSIONS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "v", "=", " "]),
        st.lists(st.integers(0, 40), min_size=3, max_size=3).map(lambda n: ".".join(map(str, n))),
        st.sampled_from(["", "-rc.1", "-0", "beta", "-alpha-2.x"]),
        st.sampled_from(["", "+build.5"]),
    ),
)


def _first(text: str) -> tuple[str, ...]:
    return package_readings(text)[0].filters["package"]


def _versions(readings: list[Reading]) -> set[str]:
    return {version for each in readings for version in each.filters.get("version", ())}


@given(
    _PYPI_NAMES,
    st.sampled_from(["", "[extra]", "[a,b] "]),
    st.sampled_from(["==", " == ", "==="]),
    _PYPI_VERSIONS,
    st.sampled_from(["", ' ; python_version >= "3.8"', "; sys_platform=='linux'"]),
)
def test_a_requirement_is_read_as_pip_reads_it(
    name: str, extras: str, operator: str, version: str, marker: str
) -> None:
    text = f"{name}{extras}{operator}{version}{marker}"
    requirement = Requirement(text)

    readings = package_readings(text)

    assert {each.filters["package"] for each in readings} == {
        (canonicalize_name(requirement.name),)
    }
    assert str(Version(version)) in _versions(readings)
    assert {Version(each) for each in _versions(readings)} == {Version(version)}


@given(_PYPI_NAMES, st.sampled_from([">=", "<", "~=", "!="]), _RELEASES, _RELEASES)
def test_a_range_includes_what_pip_would_install(
    name: str, operator: str, bound: str, version: str
) -> None:
    text = f"{name}{operator}1.{bound}"
    specifiers = Requirement(text).specifier

    ranges = [each for each in package_readings(text) if each.includes is not None]

    assert ranges
    includes = ranges[-1].includes
    assert includes is not None
    assert includes(name, version) == specifiers.contains(version, prereleases=True)


@given(st.sampled_from(Ecosystem), _PYPI_NAMES, _NPM_NAMES, _PYPI_VERSIONS)
def test_a_package_url_is_read_as_it_was_written(
    ecosystem: Ecosystem, pypi_name: str, npm_name: str, version: str
) -> None:
    """The library escapes what the specification says, and lowers the case of names."""
    name = npm_name if ecosystem is Ecosystem.NPM else pypi_name
    namespace, _, base = name.rpartition("/")
    purl = PackageURL(ecosystem, namespace or None, base, version, {"arch": "any"}, "lib")

    readings = package_readings(purl.to_string())

    canonical = "/".join(filter(None, (purl.namespace, purl.name)))
    expected = canonicalize_name(name) if ecosystem is Ecosystem.PYPI else canonical
    assert {each.filters["package"] for each in readings} == {(literal(expected),)}
    assert readings[0].filters["ecosystem"] == (ecosystem,)
    assert version in _versions(readings)


@given(_NPM_NAMES, st.sampled_from(["@", " ", "@npm:"]), _NPM_VERSIONS)
def test_a_release_of_npm_is_read_in_each_form(name: str, between: str, version: str) -> None:
    plain = version.strip(" v=")

    readings = package_readings(f"{name}{between}{plain}")

    assert readings[0].filters["package"] == (literal(name),)
    assert plain in _versions(readings)


def test_versions_of_npm_are_spelled_as_its_client_does() -> None:
    """One of the spellings is what a registry has, whatever was typed."""
    texts = [
        f"{sign}{number}{prerelease}{build}"
        for sign in ("", "v", "=", "v=", " ")
        for number in ("1.2.3", "0.0.0", "10.20.30")
        for prerelease in ("", "-rc.1", "-0", "beta", "-alpha-2.x", "-01")
        for build in ("", "+build.5")
    ]
    answers = ask_npm([("parse", text) for text in texts])

    for text, answer in zip(texts, answers, strict=True):
        major, minor, patch, prerelease = answer
        tail = ".".join(map(str, prerelease))
        assert f"{major}.{minor}.{patch}{'-' if tail else ''}{tail}" in [*npm_spellings(text)], text


@given(st.text(max_size=TEXT_MAX + 1))
def test_any_text_is_read_within_bounds(text: str) -> None:
    """Clients choose the text, and each reading may cost queries."""
    if not text.lower().startswith("pkg:"):
        assert len(package_readings(text)) <= READINGS_MAX


@pytest.mark.parametrize(
    "text", ["a" * TEXT_MAX, "a/" * 400, "@" * 900, "1." * 450, "a-1.0" * 180, '"a": ' * 180]
)
def test_long_texts_are_read_at_once(text: str) -> None:
    """Each of them would take seconds if a pattern tried every way to split it."""
    assert len(package_readings(text)) <= READINGS_MAX


@pytest.mark.parametrize("text", ["left-pad 1.3.0", "jinja2 == 2.10", "jinja2 [i18n] ( == 2.10 )"])
def test_a_run_of_spaces_is_one_space(text: str) -> None:
    """Patterns may take cubic time for long ones: what is read has none."""
    assert package_readings(text.replace(" ", " \t" * 50)) == package_readings(text) != []
