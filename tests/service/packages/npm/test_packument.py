"""A package is read from a registry's full document; what cannot be offered is dropped."""

import hashlib
import json
from datetime import UTC, datetime

import msgspec
import pytest

from service.packages.npm.document import (
    VERSIONS_MAX,
    NpmPackage,
    PackageVersion,
    decode_package,
    encode_package,
    file_name,
    find_file,
)
from service.packages.npm.packument import (
    EXTRA_BYTES_MAX,
    MEMBERS_MAX,
    TAGS_MAX,
    TIME_BYTES_MAX,
    VERSION_BYTES_MAX,
    parse_package,
)
from service.packages.npm.render import render_abbreviated, render_full
from service.packages.proxy.documents import (
    CHUNK_BYTES,
    DOCUMENT_BYTES_MAX,
    DocumentInvalid,
    EncodingUnknown,
)
from tests.service.packages.proxy.synthetic import (
    FILES,
    INDEX,
    ORIGINS,
    Json,
    encoded,
    package_version,
    packument,
)

NAME = "some-package"
BASE = "https://countersign.example/proxy/acme/npm"


def parsed(*versions: Json, name: str = NAME, **changes: object) -> NpmPackage:
    return parse_package(encoded(packument(*versions, name=name, **changes)), name, ORIGINS)


def dist(version: str, **changes: object) -> Json:
    """What `package_version` has as `dist`, with `changes`."""
    return {**package_version(version)["dist"], **changes}


def parsed_version(**changes: object) -> PackageVersion:
    """The one version of a document, whose description has `changes`."""
    package = parsed(package_version("1.0.0", **changes))
    assert package.dropped == {}
    return package.versions["1.0.0"]


def test_a_version_has_all_that_policy_needs() -> None:
    """The document is the only source of origin, digests and publication."""
    version = parsed_version(deprecated="use another")
    content = f"{NAME}@1.0.0".encode()

    assert (version.version, version.deprecated) == ("1.0.0", "use another")
    assert (version.origin, version.path) == ("npm", f"/{NAME}/-/{NAME}-1.0.0.tgz")
    assert version.published_at == datetime(2020, 1, 1, tzinfo=UTC)
    assert version.digests == {
        "sha512:" + hashlib.sha512(content).hexdigest(),
        "sha1:" + hashlib.sha1(content, usedforsecurity=False).hexdigest(),
    }


@pytest.mark.parametrize(
    ("changes", "digests"),
    [
        ({"integrity": None, "shasum": None}, set()),
        ({"integrity": "sha512-short", "shasum": "XYZ"}, set()),
        ({"integrity": 5, "shasum": ["a"]}, set()),
        ({"integrity": "sha1-" + "A" * 27 + "=", "shasum": "0" * 40}, {"sha1:" + "0" * 40}),
        (
            {"integrity": f"sha256-{'A' * 43}=?option  md5-{'A' * 22}== new-AAAA", "shasum": None},
            {"sha256:" + "0" * 64, "md5:" + "0" * 32},
        ),
        ({"integrity": "sha512-" + "A" * 100_000, "shasum": "F" * 40}, {"sha1:" + "f" * 40}),
    ],
)
def test_digests_are_read_from_both_members(changes: Json, digests: set[str]) -> None:
    """Subresource Integrity allows several; old versions have a SHA-1 alone."""
    assert parsed_version(dist=dist("1.0.0", **changes)).digests == digests


@pytest.mark.parametrize(
    ("deprecated", "expected"),
    [
        ("", False),
        (False, False),
        (None, False),
        (True, True),
        ("x" * 5000, "x" * 4096),
        ({}, False),
    ],
)
def test_a_deprecation_is_a_text(deprecated: object, expected: bool | str) -> None:
    """An empty one lifts it; some registries have true instead."""
    assert parsed_version(deprecated=deprecated).deprecated == expected


def test_versions_without_a_usable_instant_are_offered() -> None:
    """They are then too young for any cooldown."""
    versions = [package_version(f"1.0.{number}") for number in range(4)]
    times = {"1.0.0": "never", "1.0.1": {"x": 1}, "1.0.2": "2024-01-01T00:00:00.000Z"}

    package = parsed(*versions, time=times)

    assert [version.published_at for version in package.versions.values()] == [
        None,
        None,
        datetime(2024, 1, 1, tzinfo=UTC),
        None,
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "other"}, "version is described as another one"),
        ({"name": None}, "version is described as another one"),
        ({"version": "6.6.6"}, "version is described as another one"),
        ({"readme": "x" * VERSION_BYTES_MAX}, "version is too large"),
        ({"dist": None}, "version is described wrongly"),
        ({"dist": []}, "version is described wrongly"),
        ({"dist": {}}, "version has no tarball"),
        ({"dist": {"tarball": 1}}, "version has no tarball"),
        ({"dist": {"tarball": "https://evil.example/a.tgz"}}, "origin is not configured"),
        ({"dist": {"tarball": "/relative.tgz"}}, "origin is not configured"),
        ({"dist": {"tarball": f"{INDEX}/a/../b.tgz"}}, "URL path is unsafe"),
        ({"dist": {"tarball": f"{INDEX}/a%2fb.tgz"}}, "URL path is unsafe"),
        ({"dist": {"tarball": f"{INDEX}/a.tgz?token=1"}}, "URL path is unsafe"),
    ],
)
def test_a_version_that_cannot_be_trusted_is_dropped(changes: Json, reason: str) -> None:
    wrong = {**package_version("2.0.0"), **changes}
    document = packument(package_version("1.0.0"))
    document["versions"]["2.0.0"] = wrong
    document["dist-tags"] = {"latest": "1.0.0", "next": "2.0.0"}

    package = parse_package(encoded(document), NAME, ORIGINS)

    assert list(package.versions) == ["1.0.0"]
    assert package.tags == {"latest": "1.0.0"}
    assert package.dropped == {reason: 1, "dist-tag without its version": 1}


@pytest.mark.parametrize("version", ["", "1/../2", "1.0.0 ", '1.0.0"', "1.0.0\n", "1" * 257, "é"])
def test_a_version_that_is_no_version_is_dropped(version: str) -> None:
    """It would become part of a URL."""
    package = parsed(package_version("1.0.0"), package_version(version))

    assert list(package.versions) == ["1.0.0"]
    assert package.dropped["version has characters that versions must not have"] == 1


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "document is not JSON"),
        (b"\xff", "document is not JSON"),
        (b'{"name":"some-package","versions":{"1.0.0":{"a":"\xff"}}}', "document is not JSON"),
        (b"{}", "document is of another package"),
        (b"[]", "document has members of other types than expected"),
        (encoded(packument(name="Some-NpmPackage")), "document is of another package"),
        (encoded(packument(name={"x": 1})), "document is of another package"),
        (encoded(packument(versions=[])), "document has members of other types than expected"),
        (encoded(packument(time=1)), "document has members of other types than expected"),
        (
            encoded(packument(versions=dict.fromkeys(range(VERSIONS_MAX + 1), 0))),
            "document has too many versions",
        ),
        (
            encoded(packument(**{"dist-tags": dict.fromkeys(range(TAGS_MAX + 1), "")})),
            "document has too many dist-tags",
        ),
        (b'{"name":' + b"[" * 1_000_000, "document is nested too deeply"),
        (b" " * (DOCUMENT_BYTES_MAX + 1), "document is too large"),
        (encoded(dict.fromkeys(range(MEMBERS_MAX + 1))), "document has too many members"),
        (
            encoded(packument(time={"1.0.0": "1" * TIME_BYTES_MAX})),
            "document has a member that is too large",
        ),
    ],
    ids=range(15),
)
def test_a_document_that_cannot_be_used(document: bytes, reason: str) -> None:
    """It is the upstream's fault: 502, never an empty package."""
    with pytest.raises(DocumentInvalid) as invalid:
        parse_package(document, NAME, ORIGINS)

    assert str(invalid.value) == reason


def test_members_that_are_too_large_are_left_out() -> None:
    """They are copied and compressed with each answer, and installs do not need them."""
    half = "x" * (EXTRA_BYTES_MAX // 2)

    package = parsed(
        package_version("1.0.0"), readme="short", first=half, second=half, third=half, author="me"
    )

    extra = json.loads(b"{" + package.extra + b"}")
    assert (extra["readme"], extra["first"], extra["author"]) == ("short", half, "me")
    assert {"second", "third"}.isdisjoint(extra)
    assert len(package.extra) <= EXTRA_BYTES_MAX
    assert package.dropped == {"member is too large": 2}
    assert list(package.versions) == ["1.0.0"]


def test_large_versions_are_stored_in_parts() -> None:
    """One call of the codec for all of them would stop the event loop."""
    text = "x" * (CHUNK_BYTES // 3)
    versions = [package_version(f"1.0.{number}", readme=text) for number in range(10)]
    package = parsed(*versions, package_version("2.0.0", readme=text * 5))

    stored = encode_package(package)

    _, parts = msgspec.msgpack.decode(stored.partition(b"\n")[2], type=tuple[object, list[bytes]])
    single = [part for part in parts if len(part) > CHUNK_BYTES]
    assert [len(msgspec.msgpack.decode(part)) for part in single] == [1]
    assert decode_package(stored) == package


def test_a_package_without_versions_is_one() -> None:
    """Registries have such documents of unpublished packages."""
    document = {"name": NAME, "time": {"unpublished": {"name": "x"}, "created": "2020-01-01"}}

    package = parse_package(encoded(document), NAME, ORIGINS)

    assert (package.versions, package.tags, package.time) == ({}, {}, b'{"created":"2020-01-01"}')


def test_half_a_character_is_replaced() -> None:
    """Npm cuts readmes in the middle of a character, and the package must stay installable."""
    readme = r'"readme":"\\ud800 \ud83d\ude00 \ude00 cut \ud83d"'
    document = encoded(packument(package_version("1.0.0"))).replace(
        b'"readme":"# Some package\\n"', readme.encode()
    )
    assert readme.encode() in document

    package = parse_package(document, NAME, ORIGINS)

    full = json.loads(b"".join(render_full(package, BASE, {})))
    assert full["readme"] == "\\ud800 \N{GRINNING FACE} \ufffd cut \ufffd"


def test_a_tarball_is_found_by_the_name_it_is_served_as() -> None:
    same = {"tarball": f"{FILES}/download/tarball.tgz"}
    package = parsed(
        package_version("1.0.0", dist=same),
        package_version("1.0.0+build.5", dist=same),
        package_version("2.0.0-rc.1", dist={"tarball": f"{FILES}/{NAME}-1.0.0.tgz"}),
        package_version("3.0.0", dist={"tarball": f"{FILES}/x/some-package-v3%2B1.tgz"}),
    )

    for version in package.versions.values():
        assert find_file(package, file_name(NAME, version.version)) is version
    assert find_file(package, "some-package-v3+1.tgz") is package.versions["3.0.0"]
    for file in ("tarball.tgz", "some-package-4.0.0.tgz", "", ".tgz", "x/some-package-v3+1.tgz"):
        assert find_file(package, file) is None


@pytest.mark.parametrize("file", ["thing-1.0.0.tgz", "@some/thing-1.0.0.tgz", "old-thing-1.tgz"])
def test_a_scoped_tarball_is_found_in_any_style(file: str) -> None:
    """Registries write the scope into the file's name, or not; lockfiles have what they wrote."""
    url = f"{INDEX}/@some/thing/-/@some/old-thing-1.tgz"
    version = package_version("1.0.0", "@some/thing", dist={"tarball": url})

    package = parsed(version, name="@some/thing")

    assert find_file(package, file) is package.versions["1.0.0"]
    assert find_file(package, f"@other/{file}") is None


def test_a_cached_package_is_the_same() -> None:
    package = parsed(package_version("1.0.0"), package_version("1.1.0", deprecated="x"))

    again = decode_package(encode_package(package))

    assert again == package
    assert b"".join(render_abbreviated(again, BASE, {})) == b"".join(
        render_abbreviated(package, BASE, {})
    )


@pytest.mark.parametrize("damage", [b"", b"npm-package/0\n\x90", b"npm-package/1\n", b"\x00"])
def test_cached_bytes_of_another_form_are_unknown(damage: bytes) -> None:
    """After an upgrade, documents are fetched again instead of being read wrongly."""
    with pytest.raises(EncodingUnknown):
        decode_package(damage)
