"""Documents as clients are served them: blocked versions are marked, tarballs come from us."""

import json

import pytest

from service.packages.npm.document import NpmPackage
from service.packages.npm.packument import parse_package
from service.packages.npm.render import (
    ABBREVIATED,
    FULL,
    negotiate,
    render_abbreviated,
    render_full,
    render_manifest,
)
from tests.service.packages.proxy.synthetic import (
    ORIGINS,
    Json,
    encoded,
    package_version,
    packument,
)

BASE = "https://countersign.example/proxy/acme/npm"
NAME = "some-package"
REASON = 'blocked by Countersign: MAL-2024-1 "quoted" \n'


def parsed(*versions: Json, name: str = NAME, **changes: object) -> NpmPackage:
    return parse_package(encoded(packument(*versions, name=name, **changes)), name, ORIGINS)


def abbreviated(package: NpmPackage, **marks: str) -> Json:
    document: Json = json.loads(b"".join(render_abbreviated(package, BASE, marks)))
    return document


def full(package: NpmPackage, **marks: str) -> Json:
    document: Json = json.loads(b"".join(render_full(package, BASE, marks)))
    return document


def manifest(package: NpmPackage, version_or_tag: str, **marks: str) -> Json | None:
    rendered = render_manifest(package, BASE, marks, version_or_tag)
    document: Json | None = None if rendered is None else json.loads(rendered)
    return document


def test_the_full_form_is_upstreams_but_for_the_tarball() -> None:
    """Fields that this version does not know survive, as numbers of any size do."""
    version = package_version("1.0.0", unknown={"deep": [1.50, 10**40, None, "\u2028"]})
    document = packument(version, alsoUnknown=[{}], _attachments={"large": True})

    rendered = full(parse_package(encoded(document), NAME, ORIGINS))

    document["versions"]["1.0.0"]["dist"]["tarball"] = f"{BASE}/{NAME}/-/{NAME}-1.0.0.tgz"
    del document["_attachments"]
    assert rendered == document


def test_the_abbreviated_form_has_what_installing_needs() -> None:
    """Npm's registry API lists the members; publication instants are added for cooldowns."""
    kept = {
        "optionalDependencies": {"a": "1"},
        "bundleDependencies": ["b"],
        "peerDependencies": {"c": "1"},
        "peerDependenciesMeta": {"c": {"optional": True}},
        "bin": {"some": "bin.js"},
        "directories": {"lib": "lib"},
        "cpu": ["x64"],
        "os": ["!win32"],
        "libc": ["glibc"],
        "funding": "https://example.org",
        "_hasShrinkwrap": False,
    }
    version = package_version("1.0.0", **kept)
    package = parsed(version)

    document = abbreviated(package)

    assert document.keys() == {"name", "dist-tags", "versions", "time", "modified"}
    assert document["modified"] == document["time"]["modified"] == full(package)["time"]["modified"]
    assert document["time"]["1.0.0"].startswith("2020-01-01")
    dist = {**version["dist"], "tarball": f"{BASE}/{NAME}/-/{NAME}-1.0.0.tgz"}
    same = ("name", "version", "dependencies", "devDependencies", "engines")
    assert document["versions"]["1.0.0"] == {
        **kept,
        **{key: version[key] for key in same},
        "dist": dist,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scripts": {"install": "node-gyp rebuild"}}, True),
        ({"scripts": {"postinstall": "node x.js"}}, True),
        ({"scripts": {"prepare": "tsc", "install": ""}}, None),
        ({"scripts": ["install"]}, None),
        ({"scripts": {"install": "x"}, "hasInstallScript": False}, False),
    ],
)
def test_install_scripts_are_announced(changes: Json, expected: bool | None) -> None:
    """The abbreviated form has no scripts: npm and pnpm know from this flag that there are some."""
    document = abbreviated(parsed(package_version("1.0.0", **changes)))

    assert document["versions"]["1.0.0"].get("hasInstallScript") is expected


def test_a_marked_version_is_deprecated_with_the_reason() -> None:
    package = parsed(package_version("1.0.0"), package_version("1.1.0", deprecated="old"))

    for document in (abbreviated(package, **{"1.1.0": REASON}), full(package, **{"1.1.0": REASON})):
        assert document["versions"]["1.1.0"]["deprecated"] == REASON
        assert "deprecated" not in document["versions"]["1.0.0"]
        assert document["dist-tags"] == {"latest": "1.0.0"}
    assert abbreviated(package)["versions"]["1.1.0"]["deprecated"] == "old"
    assert abbreviated(package)["dist-tags"] == {"latest": "1.1.0"}


def test_a_manifest_is_found_by_version_and_by_tag() -> None:
    package = parsed(package_version("1.0.0"), package_version("1.1.0"))
    marks = {"1.1.0": REASON}

    assert manifest(package, "1.1.0", **marks) == full(package, **marks)["versions"]["1.1.0"]
    assert manifest(package, "latest", **marks) == full(package, **marks)["versions"]["1.0.0"]
    assert manifest(package, "1.2.0") is None
    assert manifest(package, "") is None


@pytest.mark.parametrize(
    ("name", "version", "url"),
    [
        ("@some/thing", "1.0.0", "/@some/thing/-/thing-1.0.0.tgz"),
        ("thing", "1.0.0-rc.1+5", "/thing/-/thing-1.0.0-rc.1+5.tgz"),
        ("it's(old)", "1.0.0", "/it%27s%28old%29/-/it%27s%28old%29-1.0.0.tgz"),
    ],
)
def test_a_tarball_has_the_name_that_clients_derive(name: str, version: str, url: str) -> None:
    """Lockfiles of yarn and pnpm leave it out where it follows the convention."""
    described = package_version(version, name)
    described["dist"]["tarball"] = "https://files.example/any/where"

    document = abbreviated(parsed(described, name=name))

    assert document["versions"][version]["dist"]["tarball"] == BASE + url


def test_a_package_without_versions_is_rendered() -> None:
    package = parsed(time={})

    assert abbreviated(package) == {"name": NAME, "dist-tags": {}, "versions": {}, "time": {}}
    assert full(package)["versions"] == {}


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, FULL),
        ("", FULL),
        ("*/*", FULL),
        ("application/json", FULL),
        ("application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*", ABBREVIATED),
        ("application/vnd.npm.install-v1+json", ABBREVIATED),
        ("Application/VND.npm.install-v1+JSON", ABBREVIATED),
        ("application/vnd.npm.install-v1+json;q=0", FULL),
        ("application/vnd.npm.install-v1+json;q=0.5, application/json", FULL),
        ("text/html", FULL),
        (";;,q=", FULL),
    ],
)
def test_the_abbreviated_form_is_for_those_who_ask_for_it(accept: str | None, form: str) -> None:
    assert negotiate(accept) == form
