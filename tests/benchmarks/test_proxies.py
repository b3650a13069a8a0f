"""The registry of `bench_proxy` has documents that a proxy takes in whole."""

import hashlib

import pytest

from benchmarks.proxies import packages
from benchmarks.proxies.registry import content
from service.packages.npm.packument import parse_package
from service.packages.proxy.origins import Origins
from service.packages.pypi.listing import parse_json

URL = "http://127.0.0.1:1"
ORIGINS = Origins({"registry": URL})


@pytest.mark.parametrize("name", ["small", "usual-7", "part-uv0-03", "all-uv0"])
def test_nothing_of_a_document_is_dropped(name: str) -> None:
    """Otherwise a proxy would be measured with less than it was sent."""
    count = packages.FILES.get(name.partition("-")[0], packages.OLDER + 1)
    project = parse_json(packages.simple_page(name, URL), name, f"{URL}/simple/{name}/", ORIGINS)
    versions = packages.VERSIONS.get(name.partition("-")[0], packages.OLDER + 1)
    package = parse_package(packages.packument(name, URL), name, ORIGINS)

    assert (project.dropped, len(project.files)) == ({}, count)
    assert (package.dropped, len(package.versions)) == ({}, versions)


def test_what_can_be_installed_is_what_its_document_says() -> None:
    page = packages.simple_page("part-pip1-00", URL)
    newest = parse_json(page, "part-pip1-00", f"{URL}/simple/part-pip1-00/", ORIGINS).files[-1]
    served, metadata = (content(newest.path + ending, URL) for ending in ("", ".metadata"))

    assert served is not None
    assert metadata is not None
    assert hashlib.sha256(served[1]).hexdigest() == newest.hashes["sha256"]
    assert newest.metadata_hashes == {"sha256": hashlib.sha256(metadata[1]).hexdigest()}


def test_a_large_document_has_a_megabyte() -> None:
    for document in (packages.simple_page("large", URL), packages.packument("large", URL)):
        assert 0.7e6 < len(document) < 1.3e6
