"""A dist-tag never points at a blocked version while there is another one for it."""

import pytest

from service.packages.npm.packument import parse_package
from service.packages.npm.tags import move_tags
from tests.service.packages.proxy.synthetic import ORIGINS, encoded, package_version, packument


def moved(versions: str, tags: dict[str, str]) -> dict[str, str]:
    """Where `tags` point; of `versions` those with `!` are blocked, with `~` deprecated."""
    described = [
        package_version(version.strip("!~"), deprecated="old" if "~" in version else "")
        for version in versions.split()
    ]
    document = encoded(packument(*described, **{"dist-tags": tags}))
    package = parse_package(document, "some-package", ORIGINS)
    marks = {version.strip("!~"): "blocked" for version in versions.split() if "!" in version}
    return move_tags(package, marks)


@pytest.mark.parametrize(
    ("versions", "old", "new"),
    [
        ("1.0.0 1.1.0 2.0.0", "1.1.0", "1.1.0"),
        ("1.0.0 1.1.0 1.2.0! 2.0.0", "1.2.0", "1.1.0"),
        ("1.9.0 1.10.0 1.11.0!", "1.11.0", "1.10.0"),
        ("1.0.0 1.1.0! 1.2.0!", "1.2.0", "1.0.0"),
        ("1.0.0 1.1.0~ 1.2.0!", "1.2.0", "1.0.0"),
        ("1.0.0 1.1.0-rc.1 1.1.0!", "1.1.0", "1.0.0"),
        ("1.0.0! 1.1.0", "1.0.0", "1.0.0"),
        ("1.5.0 2.0.0! 2.1.0 3.0.0", "2.0.0", "1.5.0"),
        ("0.9.0 1.0.0 1.1.0! 3.0.0!", "3.0.0", "1.0.0"),
        ("1.0.0-beta.1 1.0.0!", "1.0.0", "1.0.0"),
        ("1.0.0~ 1.1.0~ 1.2.0~!", "1.2.0", "1.1.0"),
        ("0.9.0 1.0.0~ 1.1.0!", "1.1.0", "0.9.0"),
        ("1.0.0! 1.1.0!", "1.1.0", "1.1.0"),
        ("1.0.0 1.0.0+fix! 2.0.0", "1.0.0+fix", "1.0.0"),
        ("1.0.0 2.0", "2.0", "2.0"),
        ("1.0.0 2.0!", "2.0", "2.0"),
        ("1.0.0 1.01.0 1.1.0!", "1.1.0", "1.0.0"),
    ],
)
def test_a_tag_moves_down_to_what_its_users_want(versions: str, old: str, new: str) -> None:
    """A higher version that the maintainers did not tag may be anything."""
    assert moved(versions, {"latest": old}) == {"latest": new}


@pytest.mark.parametrize(
    ("versions", "new"),
    [
        ("1.0.0 2.0.0-beta.1 2.0.0-beta.2!", "2.0.0-beta.1"),
        ("1.0.0 2.0.0-beta.2! 2.0.0-beta.10", "1.0.0"),
        ("1.0.0 2.0.0-alpha.7~ 2.0.0-beta.2!", "1.0.0"),
        ("1.0.0-rc.1 2.0.0-beta.2!", "2.0.0-beta.2"),
    ],
)
def test_a_tag_of_prereleases_moves_among_them(versions: str, new: str) -> None:
    """Users of `next` want the newest of the coming major, and a stable one without any."""
    assert moved(versions, {"latest": "1.0.0", "next": "2.0.0-beta.2"})["next"] == new


def test_a_tag_without_its_version_is_removed() -> None:
    """Clients fail at it with a text that does not help."""
    assert moved("1.0.0", {"latest": "1.0.0", "gone": "0.1.0"}) == {"latest": "1.0.0"}


def test_each_tag_moves_by_itself() -> None:
    tags = {"latest": "2.1.0", "legacy": "1.1.0", "first": "1.0.0"}

    assert moved("1.0.0 1.1.0! 2.0.0 2.1.0!", tags) == {
        "latest": "2.0.0",
        "legacy": "1.0.0",
        "first": "1.0.0",
    }
