"""npm's versions and ranges are read as npm itself reads them."""

import itertools
import random
from collections.abc import Callable
from operator import eq, gt, lt
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import InvalidRange, InvalidVersion
from service.packages.npm.versions import NpmVersion, parse_npm_range, parse_npm_version
from service.packages.versions import VersionRange, parse_range, parse_version
from tests.budgets import budget
from tests.service.packages.node import ask_npm

_NUMBERS = ("0", "1", "2", "10")
_PRERELEASES = ("", "", "-0", "-1", "-alpha", "-alpha.1", "-rc.1", "-a-b", "-rc.10", "-01a")
_ODD = (
    "",
    " ",
    "1",
    "1.2",
    "v1.2.3",
    "=1.2.3",
    "v =v1.2.3",
    " 1.2.3 ",
    "1.2.3\n",
    "\t1.2.3",
    "1.2.3beta",
    "1.2.3beta.1",
    "01.2.3",
    "1.02.3",
    "1.2.3-01",
    "1.2.3-",
    "1.2.3+",
    "1.2.3+b..c",
    "1.2.3-a..b",
    "1.2.3+001",
    "1.2.3-a+b",
    "1.2.3.4",
    "1.2.3-é",
    "１.2.3",
    "1.2.٣",
    "1.2.3-１",
    "V1.2.3",
    "9007199254740991.0.0",
    "9007199254740992.0.0",
    "1.0.0-9007199254740993",
    "1.0.0-9007199254740992",
    "1.0.0-" + "9" * 200,
    "1.0.0-" + "a" * 250,
    "1.0.0-" + "a" * 251,
    "latest",
    "x.1.2",
    "1.2.x",
    "--1.2.3",
)


def versions(seed: int, count: int) -> list[str]:
    """Versions such as registries hold, close to one another."""
    chosen = random.Random(seed)
    return [
        ".".join(chosen.choice(_NUMBERS) for _ in range(3))
        + chosen.choice(_PRERELEASES)
        + chosen.choice(["", "", "", "+b1", "+001"])
        for _ in range(count)
    ]


def parsed(text: str) -> NpmVersion | None:
    try:
        return parse_npm_version(text)
    except InvalidVersion:
        return None


def spelled(key: NpmVersion | None) -> Any:
    """A key as npm's client shows its parts."""
    if key is None:
        return None
    major, minor, patch, prerelease = key
    return [major, minor, patch, [value for _, value in prerelease[1:]]]


def test_what_is_a_version_is_what_npm_takes_for_one() -> None:
    """A text that npm installs and the proxy cannot read would get past every rule."""
    texts = [*_ODD, *versions(1, budget(300, 3_000))]

    answers = ask_npm([("parse", text) for text in texts])

    compared = dict(zip(texts, answers, strict=True))
    huge = {text for text in texts if len(text) > 18 and text.startswith("1.0.0-9")}
    assert {text: spelled(parsed(text)) for text in texts if text not in huge} == {
        text: answer for text, answer in compared.items() if text not in huge
    }
    # npm keeps these numbers as text.
    assert all((parsed(text) is None) == (compared[text] is None) for text in huge)


def test_versions_sort_as_npm_sorts_them() -> None:
    """A range is as right as the order below it."""
    texts = [text for text in _ODD if parsed(text) is not None] + versions(2, budget(40, 200))
    pairs = list(itertools.product(texts, texts))

    answers = ask_npm([("compare", one, other) for one, other in pairs])

    compared: dict[int, Callable[[Any, Any], bool]] = {-1: lt, 0: eq, 1: gt}
    wrong = [
        (one, other, answer)
        for (one, other), answer in zip(pairs, answers, strict=True)
        if not compared[answer](parse_npm_version(one), parse_npm_version(other))
    ]
    assert wrong == []
    assert len(pairs) > 1_000


def partial(chosen: random.Random) -> str:
    """Such as `1`, `1.x` or `v1.2.3-rc.1`."""
    parts = [chosen.choice([*_NUMBERS, "x", "*", "X"]) for _ in range(chosen.choice([1, 2, 3, 3]))]
    end = chosen.choice(_PRERELEASES) if len(parts) == 3 else ""
    return chosen.choice(["", "", "", "v"]) + ".".join(parts) + end


def ranges(seed: int, count: int) -> list[str]:
    """Ranges of npm's grammar, some of them nonsense."""
    chosen = random.Random(seed)

    def comparator() -> str:
        operator = chosen.choice(["", "^", "~", ">", "<", ">=", "<=", "=", "~>"])
        return operator + chosen.choice(["", "", " "]) + partial(chosen)

    def alternative() -> str:
        if chosen.random() < 0.2:
            return f"{partial(chosen)} - {partial(chosen)}"
        if chosen.random() < 0.1:
            return chosen.choice(["", "*", "x", "latest", ">", "1.2.3.4", "^^1", ">=<1", "1 -2"])
        return " ".join(comparator() for _ in range(chosen.choice([1, 1, 2])))

    return [
        chosen.choice(["||", " || "]).join(
            alternative() for _ in range(chosen.choice([1, 1, 1, 2]))
        )
        for _ in range(count)
    ]


_PLAIN = (
    "1.2.3", "=1.2.3", "v1.2.3", "^1.2.3", "^0.2.3", "^0.0.3", "^0.0", "^0", "~1.2.3", "~1.2", "~1",
    "~> 1.2", ">1", ">=1.2", "<2", "<=2.1", "<=2", "1.x", "1.2.*", "*", "", "1 - 2", "1.2 - 2.3",
    "1.0.0 - 2.1.0-rc.1", ">=1.0.0-rc.1 <2", "^1.2.3-rc.1", "<1.0.0 || >=2.0.0", "1.2.3+build",
    "> 1.2.3   <= 2.0.0", ">=0.0.0", "^2 || ^10",
)  # fmt: skip


def test_ranges_hold_what_npm_holds_them_to() -> None:
    """A rule of a range must reach exactly the versions that npm would install by it."""
    texts = [*_PLAIN, *ranges(3, budget(1_500, 20_000))]
    known = versions(4, 200)
    chosen = random.Random(5)
    cases = [(text, version) for text in texts for version in chosen.sample(known, 4)]

    answers = ask_npm([("satisfies", text, version) for text, version in cases])

    read = {text: range_ for text in texts if (range_ := read_range(text)) is not None}
    wrong = [
        (text, version, answer)
        for (text, version), answer in zip(cases, answers, strict=True)
        if text in read and read[text].contains(parse_npm_version(version)) is not answer
    ]
    assert wrong == []
    assert set(_PLAIN) <= read.keys()
    assert len(read) > len(texts) // 3


def read_range(text: str) -> VersionRange | None:
    """The range, or None if it is refused."""
    try:
        return parse_range(Ecosystem.NPM, text)
    except InvalidRange:
        return None


@pytest.mark.parametrize("text", ["latest", ">*", "<x", "x.1", "1.x.3", "1.2.3.4", ">", "^", "1,2"])
def test_a_range_that_means_nothing_is_refused(text: str) -> None:
    """A rule that never matches would look like protection."""
    with pytest.raises(InvalidRange):
        parse_npm_range(text)


@pytest.mark.parametrize(
    "spelling", ["1.0.0+x", "v1.0.0", "=1.0.0", " 1.0.0\n", "01.0.0", "1.0.0+1"]
)
def test_spellings_of_one_version_are_equal(spelling: str) -> None:
    version = parse_version(Ecosystem.NPM, spelling)

    assert version == parse_version(Ecosystem.NPM, "1.0.0")
    assert hash(version) == hash(parse_version(Ecosystem.NPM, "1.0.0"))


@pytest.mark.parametrize("text", ["１.0.0", "1.0", "", "1.0.0-é", "1." + "9" * 300 + ".0"])
def test_what_npm_cannot_read_is_no_version(text: str) -> None:
    """Digits of other scripts among them, which Python would take for numbers."""
    with pytest.raises(InvalidVersion):
        parse_version(Ecosystem.NPM, text)
