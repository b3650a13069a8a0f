"""Policy reads the same project and version in a file name as clients do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from service.packages.pypi.filenames import FILENAME_CHARS_MAX, DistributionKind, parse_filename
from tests.budgets import budget


@pytest.mark.parametrize(
    ("filename", "project", "version", "kind"),
    [
        ("Foo_Bar-1.0-py3-none-any.whl", "foo-bar", "1.0", DistributionKind.WHEEL),
        ("foo-1.0-2-py2.py3-none-any.whl", "foo", "1.0", DistributionKind.WHEEL),
        (
            "foo-1!2.0rc1+cu118-cp39-cp39-linux_x86_64.whl",
            "foo",
            "1!2.0rc1+cu118",
            DistributionKind.WHEEL,
        ),
        ("foo-1.0.0.post1.tar.gz", "foo", "1.0.0.post1", DistributionKind.SDIST),
        ("foo.bar-1.0-beta.zip", "foo-bar-1-0", None, None),
        ("Foo.Bar-1.0B2.zip", "foo-bar", "1.0b2", DistributionKind.SDIST),
        ("foo-bar-1.0.tar.bz2", "foo-bar", "1.0", DistributionKind.SDIST),
        ("foo-01.0.tgz", "foo", "1.0", DistributionKind.SDIST),
    ],
)
def test_a_name_says_project_and_version(
    filename: str, project: str, version: str | None, kind: DistributionKind | None
) -> None:
    """Both are normalised, so that no spelling escapes a rule."""
    assert parse_filename(filename) == ((project, version, kind) if version else None)


@pytest.mark.parametrize(
    "filename",
    [
        "",
        "foo",
        "foo-1.0.exe",
        "foo-1.0-py2.7.egg",
        "foo-1.0.win32.msi",
        "foo-1.0.tar.gz.asc",
        "foo-1.0.tar",
        "foo-latest.tar.gz",
        "-1.0.tar.gz",
        "foo-1.0-none-any.whl",
        "foo-1.0-x-py3-none-any.whl",
        "foo-1.0-1-2-py3-none-any.whl",
        "foo__bar-1.0-py3-none-any.whl",
        "foo-1.0_1-py3-none-any.whl",
        "foo-1.0-py3-none-any.WHL",
        "foo-1.0-pÿ3-none-any.whl",
        "foo-1.0-py3-none-a/y.whl",
        "foo-1.0-py3--any.whl",
        "foo-１.0.tar.gz",
        "../foo-1.0.tar.gz",
        "foo-1.0\n.tar.gz",
        "f" * FILENAME_CHARS_MAX + "-1.0.tar.gz",
    ],
)
def test_other_names_are_refused(filename: str) -> None:
    """What has no certain version cannot be decided on, and no current client installs it."""
    assert parse_filename(filename) is None


def version_for_pip(stem: str, project: str) -> str | None:
    """How pip finds the version of an sdist of `project`: behind the first dash that fits."""
    for index, character in enumerate(stem):
        if character == "-" and canonicalize_name(stem[:index]) == project:
            try:
                return str(Version(stem[index + 1 :]))
            except InvalidVersion:
                return None
    return None


@settings(max_examples=budget(300, 5000), derandomize=True, database=None, deadline=None)
@given(st.text("aF0._-+!1", min_size=1, max_size=9), st.sampled_from(["1.0", "1-1", "1.0-2", "2b"]))
def test_an_sdist_has_the_version_that_pip_finds(name: str, version: str) -> None:
    """Pip splits by the project's name, the proxy at the last dash: both must agree."""
    distribution = parse_filename(f"{name}-{version}.tar.gz")

    assert distribution is None or distribution.version == version_for_pip(
        f"{name}-{version}", distribution.project
    )
