"""What is installed is pinned, has known hashes, and is all that is needed."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from service.core.settings import REPOSITORY

FOLDER = REPOSITORY / "requirements"
EXTRAS = ("postgres", "s3", "lake", "sigma", "sigstore", "dev", "mcp", "bench")
ALONE = ("uv", "chdb", "sbom")
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)(?: ; (?P<marker>.+?))?(?P<hashes> +--.*)")


def pins(*files: str, is_here: bool = False) -> dict[str, tuple[str, int]]:
    """The version, and how many hashes, of each package that these files name.

    With `is_here` only of those that this system needs.
    """
    named = {}
    for file in files:
        text = (FOLDER / f"{file}.txt").read_text().replace("\\\n", " ")
        for line in text.splitlines():
            if line and not line.startswith(("#", "--only-binary")):
                match = PIN.fullmatch(line)
                assert match is not None, f"{file}: {line[:80]}"
                if is_here and match["marker"] and not Marker(match["marker"]).evaluate():
                    continue
                hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", match["hashes"])
                named[canonicalize_name(match["name"])] = match["version"], len(hashes)
    return named


def constraints() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().split()
    parts = (line.partition("==") for line in lines)
    return {canonicalize_name(name): version for name, _, version in parts}


def needs(requirements: list[str] | None) -> set[str]:
    """The names of what these requirements ask for on this system, without extras."""
    parsed = [Requirement(line) for line in requirements or []]
    return {
        canonicalize_name(entry.name)
        for entry in parsed
        if entry.marker is None or entry.marker.evaluate({"extra": ""})
    }


def test_every_pin_is_that_of_the_constraints_and_has_hashes() -> None:
    """A difference means that `make hashes` was not run."""
    named = pins("service", *EXTRAS, *ALONE)

    assert {name: version for name, (version, _) in named.items()} == constraints()
    assert min(count for _, count in named.values()) > 0


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.txt")), ids=lambda file: file.stem)
def test_files_name_no_index_and_want_built_packages(file: Path) -> None:
    """A source archive would be built with tools that have no hash."""
    text = file.read_text()

    assert "://" not in text
    assert "--only-binary :all:\n" in text
    assert file.stem in {"service", *EXTRAS, *ALONE}


@pytest.mark.parametrize("extra", ["", "postgres", "s3", "lake", "sigma", "sigstore", "dev"])
def test_files_name_all_that_their_packages_need(extra: str) -> None:
    """They are installed without looking for dependencies, which would have no hash."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    direct = project["project"]["dependencies"] + project["build-system"]["requires"]
    if extra:
        direct = project["project"]["optional-dependencies"][extra]
    files = ("service", extra) if extra else ("service",)
    named = pins(*files, is_here=True)

    assert needs(direct) <= named.keys()
    for name in named:
        assert needs(requires(name)) <= named.keys(), name


def test_an_extra_adds_only_what_the_service_lacks() -> None:
    service = pins("service").keys()

    assert all(service.isdisjoint(pins(extra)) for extra in EXTRAS)
