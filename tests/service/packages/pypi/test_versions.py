"""PyPI's versions and specifiers are those of `packaging`, which pip itself uses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version as PypiVersion

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import ComparableVersion, InvalidRange, InvalidVersion
from service.packages.intervals import contains
from service.packages.versions import ExactVersions, folded, parse_range, parse_version, sort_key

_NUMBERS = st.lists(st.integers(0, 3), min_size=1, max_size=4)
_PRERELEASES = st.sampled_from([None, "a0", "a1", "b2", "rc1"])
_POSTS = st.sampled_from([None, "post0", "post1"])
_DEVS = st.sampled_from([None, "dev0", "dev3"])
_LOCALS = st.sampled_from([None, None, "local", "cu118", "1"])


@st.composite
def versions(draw: st.DrawFn) -> str:
    """Versions of every form, in their canonical spelling."""
    epoch = draw(st.sampled_from(["", "", "1!"]))
    text = epoch + ".".join(map(str, draw(_NUMBERS)))
    if prerelease := draw(_PRERELEASES):
        text += prerelease
    if post := draw(_POSTS):
        text += f".{post}"
    if dev := draw(_DEVS):
        text += f".{dev}"
    if local := draw(_LOCALS):
        text += f"+{local}"
    return text


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A version, and another spelling of it that PEP 440 normalises to the same."""
    version = draw(versions())
    text = version
    if draw(st.booleans()):
        text = text.replace("a", "alpha", 1) if "+" not in text else text
    if draw(st.booleans()):
        text = text.replace(".post", draw(st.sampled_from(["-post", "_post", "post", ".rev"])))
    if draw(st.booleans()):
        text = text.replace("rc", draw(st.sampled_from(["c", "pre", "preview", "-rc", ".rc."])))
    text = draw(st.sampled_from(["", "v", "V", " v"])) + text
    text = text + draw(st.sampled_from(["", " ", "\n"]))
    return version, text.upper() if draw(st.booleans()) else text


def is_listed(texts: list[str], version: ComparableVersion) -> bool:
    """Whether `version` is one of those in `texts`."""
    return contains(ExactVersions.of(Ecosystem.PYPI, texts).intervals, sort_key(version))


@given(spellings())
def test_spellings_of_one_version_are_equal(pair: tuple[str, str]) -> None:
    """Nothing gets past a rule by spelling: not by `v`, case, separators or white space."""
    version, spelling = pair
    rule = parse_range(Ecosystem.PYPI, version)

    respelled = parse_version(Ecosystem.PYPI, spelling)

    assert respelled == parse_version(Ecosystem.PYPI, version)
    assert rule.contains(respelled)
    assert is_listed([version], respelled)
    assert is_listed([spelling], PypiVersion(version))


@pytest.mark.parametrize("spelling", ["1.0", "1", "1.0.0", "v1.0", "0!1.0", " 1.0 ", "01.00"])
def test_trailing_zeros_and_a_zero_epoch_change_nothing(spelling: str) -> None:
    """PEP 440 takes these for one version, and so does the rule `==1.0`."""
    assert parse_range(Ecosystem.PYPI, "==1.0").contains(parse_version(Ecosystem.PYPI, spelling))


@pytest.mark.parametrize("spelling", ["1.0.post", "1.0.post0", "1.0-0", "1.0.r0", "1.0-post0"])
def test_spellings_of_a_post_release(spelling: str) -> None:
    version = parse_version(Ecosystem.PYPI, spelling)

    assert parse_range(Ecosystem.PYPI, "==1.0.post0").contains(version)
    assert not parse_range(Ecosystem.PYPI, "==1.0").contains(version)


@pytest.mark.parametrize("epoch", ["1!1.0", "2!1.0"])
def test_another_epoch_is_another_version(epoch: str) -> None:
    """An epoch lifts a version above all of a lower one."""
    version = parse_version(Ecosystem.PYPI, epoch)

    assert not parse_range(Ecosystem.PYPI, "==1.0").contains(version)
    assert parse_range(Ecosystem.PYPI, ">=99").contains(version)


@given(versions())
def test_a_rule_of_a_public_version_holds_for_its_local_builds(version: str) -> None:
    """`1.0+anything` is a build of `1.0`: the rule `==1.0` must not be evaded by rebuilding."""
    public = PypiVersion(version).public
    local = parse_version(Ecosystem.PYPI, f"{public}+evil.1")

    assert parse_range(Ecosystem.PYPI, f"=={public}").contains(local)
    assert parse_range(Ecosystem.PYPI, public).contains(local)
    assert is_listed([public], local)
    assert not is_listed([f"{public}+good.1"], local)


@given(
    st.lists(
        st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "~="]), versions()),
        min_size=1,
        max_size=3,
    ),
    versions(),
)
def test_specifiers_hold_what_packaging_holds_them_to(
    parts: list[tuple[str, str]], version: str
) -> None:
    """With prereleases: what pip may install on demand, a rule must reach."""
    text = ",".join(operator + bound for operator, bound in parts)
    try:
        specifiers = SpecifierSet(text)
    except ValueError:
        with pytest.raises(InvalidRange):
            parse_range(Ecosystem.PYPI, text)
        return

    range_ = parse_range(Ecosystem.PYPI, text)

    assert range_.contains(parse_version(Ecosystem.PYPI, version)) == specifiers.contains(
        version, prereleases=True
    )


@pytest.mark.parametrize("version", ["1.0", "1.0+local", "2.0.dev0", "2.0a1", "2.0", "2.0.post1"])
@pytest.mark.parametrize(
    "specifier", ["!=1.0", ">=1.0,!=2.0", "!=2.0,!=1.0", "!=2.*", "<2.0", "<2.0.dev0", "<=2.0"]
)
def test_excluded_versions_and_bounds_are_those_of_packaging(specifier: str, version: str) -> None:
    """A bound excludes the prereleases of its version, the first one too."""
    expected = SpecifierSet(specifier).contains(version, prereleases=True)

    range_ = parse_range(Ecosystem.PYPI, specifier)

    assert range_.contains(parse_version(Ecosystem.PYPI, version)) is expected


@pytest.mark.parametrize(
    "text",
    ["１.0", "1.٣", "1.0é", "", "latest", "1.0+", "1.0+a+b", "1" * 257, "9" * 5_000, "1.0.*"],
)
def test_what_pip_cannot_read_is_no_version(text: str) -> None:
    """Digits of other scripts among them; and no number is too long to be refused."""
    with pytest.raises(InvalidVersion):
        parse_version(Ecosystem.PYPI, text)


@pytest.mark.parametrize(
    "text", ["", " ", "===1.0", ">=1.0,===1.0", ">=", "latest", ">=1.0;<2", "=1.0", "9" * 5_000]
)
def test_a_range_that_could_be_evaded_is_refused(text: str) -> None:
    """`===` compares spellings, and no specifier at all would mean every version."""
    with pytest.raises(InvalidRange):
        parse_range(Ecosystem.PYPI, text)


def test_what_is_listed_and_unreadable_is_found_by_its_spelling() -> None:
    """Old versions of PyPI follow no rule."""
    listed = ExactVersions.of(Ecosystem.PYPI, ["1.0", "2004-Final"])

    assert listed.unreadable == {folded(" 2004-final ")}
