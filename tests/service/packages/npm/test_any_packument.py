"""No document of an upstream, however made, leads a client past the proxy."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from service.packages.npm.document import (
    NpmPackage,
    decode_package,
    encode_package,
    find_file,
    without_folder,
)
from service.packages.npm.packument import parse_package
from service.packages.npm.render import render_abbreviated, render_full, render_manifest
from service.packages.proxy.documents import DocumentInvalid
from service.packages.proxy.origins import Origins
from tests.service.packages.npm.test_render import BASE
from tests.service.packages.proxy.hostile import SEEDED, any_json, reason, url
from tests.service.packages.proxy.synthetic import (
    ORIGINS,
    Json,
    encoded,
    package_version,
    packument,
)

SERVED = Origins({"proxy": "https://countersign.example"})
VERSIONS = ("1.0.0", "1.0.0+b", "1.1.0-rc.1", "1.2.0", "2.0.0", "v3", "../4", '5"')
NAMES = ("some-package", "@some/package")


@st.composite
def versions(draw: st.DrawFn, name: str) -> Json:
    """A version, mostly in order."""
    version = package_version(draw(st.sampled_from(VERSIONS)), name)
    if draw(st.booleans()):
        return version
    version["dist"]["tarball"] = draw(url) + draw(st.sampled_from(["", "/some-package-2.0.0.tgz"]))
    version["deprecated"] = draw(reason | st.booleans())
    if draw(st.booleans()):
        version["dist"][draw(st.sampled_from(sorted(version["dist"])))] = draw(any_json)
    if draw(st.booleans()):
        version[draw(st.sampled_from(sorted(version)) | st.text(max_size=4))] = draw(any_json)
    return version


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, Json]:
    """A package's name and its document."""
    name = draw(st.sampled_from(NAMES))
    described = draw(st.lists(versions(name), max_size=6))
    keys = [str(version.get("version")) for version in described]
    document = packument(name=name)
    document["versions"] = dict(zip(keys, described, strict=True))
    document["time"] |= {key: draw(st.just("2024-01-01T00:00:00Z") | any_json) for key in keys}
    document["dist-tags"] = draw(
        st.dictionaries(st.text(max_size=5), st.sampled_from([*VERSIONS, *keys]) | any_json)
    )
    document[draw(st.text(max_size=5))] = draw(any_json)
    return name, document


def check(package: NpmPackage, source: Json, marks: dict[str, str]) -> None:
    """What must hold of every package that was parsed."""
    assert decode_package(encode_package(package)) == package
    full = json.loads(b"".join(render_full(package, BASE, marks)))
    short = json.loads(b"".join(render_abbreviated(package, BASE, marks)))
    assert list(full["versions"]) == list(short["versions"]) == list(package.versions)
    assert full["dist-tags"] == short["dist-tags"]
    assert full["time"] == short["time"]
    for tag, version in full["dist-tags"].items():
        assert version in package.versions
        assert version == package.tags[tag] or version not in marks
        rendered = render_manifest(package, BASE, marks, version)
        assert rendered is not None
        assert json.loads(rendered) == full["versions"][version]
    for version, record in package.versions.items():
        prefix = f"{BASE}/{package.name}/-/"
        for document in (full, short):
            entry = document["versions"][version]
            tarball = entry["dist"]["tarball"]
            assert tarball.startswith(prefix)
            file = tarball.removeprefix(prefix)
            assert file.startswith("blocked/") == (version in marks)
            assert find_file(package, without_folder(file)) is record
            assert (entry["name"], entry["version"]) == (package.name, version)
            assert version not in marks or entry["deprecated"] == (marks[version] or True)
        unchanged = source["versions"][version]
        for key in unchanged.keys() - {"dist", "deprecated"}:
            assert full["versions"][version][key] == unchanged[key]
        for key in unchanged["dist"].keys() - {"tarball"}:
            assert full["versions"][version]["dist"][key] == unchanged["dist"][key]


def check_served_again(package: NpmPackage) -> None:
    """A second proxy in front of this one serves the same versions."""
    again = parse_package(b"".join(render_full(package, BASE, {})), package.name, SERVED)

    assert again.dropped == {}
    assert list(again.versions) == list(package.versions)
    assert [version.digests for version in again.versions.values()] == [
        version.digests for version in package.versions.values()
    ]
    assert again.tags == package.tags


@SEEDED
@given(documents(), st.dictionaries(st.sampled_from(VERSIONS), reason))
@example(("some-package", packument(package_version("2.0.0"))), {"2.0.0": '"\\\u2028'})
def test_any_versions(document: tuple[str, Json], marks: dict[str, str]) -> None:
    name, described = document
    try:
        package = parse_package(encoded(described), name, ORIGINS)
    except DocumentInvalid:
        return

    check(package, described, marks)
    check_served_again(package)


@SEEDED
@given(any_json, st.sampled_from(["name", "versions", "time", "dist-tags", "modified", "readme"]))
def test_any_member(value: Any, member: str) -> None:
    document = packument(package_version("1.0.0")) | {member: value}
    try:
        package = parse_package(encoded(document), "some-package", ORIGINS)
    except DocumentInvalid:
        return

    check(package, document, {})


@SEEDED
@given(st.binary(max_size=200) | any_json.map(encoded))
def test_any_bytes(body: bytes) -> None:
    """Every document must at least name its package."""
    try:
        package = parse_package(body, "some-package", ORIGINS)
    except DocumentInvalid:
        return

    assert package.versions == {}
