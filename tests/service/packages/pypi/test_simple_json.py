"""A project is read from an upstream's JSON page; what cannot be offered is dropped and counted."""

from datetime import UTC, datetime

import pytest

from service.packages.proxy.documents import (
    DOCUMENT_BYTES_MAX,
    ENTRIES_PER_CHUNK,
    DocumentInvalid,
    EncodingUnknown,
)
from service.packages.pypi.filenames import DistributionKind
from service.packages.pypi.listing import parse_json
from service.packages.pypi.project import (
    FILES_MAX,
    ProjectFile,
    PypiProject,
    decode_project,
    encode_project,
    find_file,
)
from tests.service.packages.proxy.synthetic import (
    FILES,
    INDEX,
    ORIGINS,
    PAGE_URL,
    Json,
    encoded,
    simple_file,
    simple_page,
)

WHEEL = "some_project-1.0-py3-none-any.whl"
SDIST = "some_project-1.0.tar.gz"
SHA256 = "a" * 64


def parsed(page: Json) -> PypiProject:
    return parse_json(encoded(page), "some-project", PAGE_URL, ORIGINS)


def parsed_file(**changes: object) -> ProjectFile:
    """The one file of a page, whose description has `changes`."""
    project = parsed(simple_page(simple_file(WHEEL, **changes)))
    assert project.dropped == {}
    return project.files[0]


def test_a_file_has_all_that_policy_and_clients_need() -> None:
    file = parsed_file(
        url=f"{FILES}/packages/ab/{WHEEL}",
        hashes={"sha256": SHA256.upper(), "md5": "b" * 32, "sha1": "too short", "new": "ff"},
        **{"upload-time": "2024-05-06T07:08:09.123456Z", "requires-python": ">=3.9"},
        yanked="broken",
        size=1234,
        provenance=f"{INDEX}/integrity/x",
    )

    assert file == ProjectFile(
        filename=WHEEL,
        version="1.0",
        kind=DistributionKind.WHEEL,
        origin="pypi",
        path=f"/packages/ab/{WHEEL}",
        hashes={"sha256": SHA256, "md5": "b" * 32},
        requires_python=">=3.9",
        size=1234,
        published_at=datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
        yanked="broken",
        metadata_hashes=file.metadata_hashes,
        provenance=f"{INDEX}/integrity/x",
    )
    assert file.digests == {f"sha256:{SHA256}", f"md5:{'b' * 32}"}


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-01-02T03:04:05+02:00", datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("2024-01-02T03:04:05", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_an_instant_that_is_none_is_missing(text: str | None, instant: datetime | None) -> None:
    """A file is offered without one, and is then too young for any cooldown."""
    assert parsed_file(**{"upload-time": text}).published_at == instant


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"core-metadata": {"sha256": SHA256}}, {"sha256": SHA256}),
        ({"core-metadata": True}, {}),
        ({"core-metadata": False, "dist-info-metadata": True}, None),
        ({"core-metadata": None, "dist-info-metadata": {"sha256": SHA256}}, {"sha256": SHA256}),
        ({"core-metadata": None}, None),
    ],
)
def test_metadata_is_what_the_newer_name_says(changes: Json, expected: object) -> None:
    """PEP 714 renamed the key; registries may have either."""
    assert parsed_file(**changes).metadata_hashes == expected


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"yanked": ""}, "yanked", True),
        ({"yanked": None}, "yanked", False),
        ({"yanked": "y" * 5000}, "yanked", "y" * 1024),
        ({"size": -1}, "size", None),
        ({"size": 10**30}, "size", None),
        ({"size": None}, "size", None),
        ({"hashes": None}, "hashes", {}),
        ({"requires-python": ""}, "requires_python", None),
        ({"provenance": "javascript:alert(1)"}, "provenance", None),
        (
            {"url": f"../../packages/{WHEEL}#sha256={SHA256}", "hashes": {}},
            "hashes",
            {"sha256": SHA256},
        ),
        ({"url": f"{FILES}/{WHEEL}#egg=some"}, "path", f"/{WHEEL}"),
        ({"later": {"unknown": []}}, "filename", WHEEL),
    ],
)
def test_a_field_without_a_usable_value(changes: Json, field: str, expected: object) -> None:
    assert getattr(parsed_file(**changes), field) == expected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"url": f"https://evil.example/{WHEEL}"}, "origin is not configured"),
        ({"url": f"{FILES}/a/../{WHEEL}"}, "URL path is unsafe"),
        ({"filename": "some_project-2.0-py3-none-any.whl"}, "file name differs from its URL"),
        ({"filename": "other-1.0.zip", "url": "/other-1.0.zip"}, "file is of another project"),
        ({"filename": "x.exe", "url": f"{FILES}/x.exe"}, "file name is not of a wheel or sdist"),
        ({"requires-python": ">" * 1025}, "requires-python is too long"),
        ({"url": f"{FILES}/{WHEEL}#sha256={'0' * 64}"}, "digests differ"),
        ({"filename": 1}, "file is described wrongly"),
        ({"url": None}, "file is described wrongly"),
        ({"hashes": {"sha256": 1}}, "file is described wrongly"),
        ({"hashes": []}, "file is described wrongly"),
        ({"yanked": {}}, "file is described wrongly"),
        ({"upload-time": 1.5}, "file is described wrongly"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_dropped(changes: Json, reason: str) -> None:
    project = parsed(simple_page(simple_file(SDIST), simple_file(WHEEL, **changes)))

    assert [file.filename for file in project.files] == [SDIST]
    assert project.dropped == {reason: 1}


def test_a_name_that_is_listed_twice_is_offered_once() -> None:
    """A file name has one record, whose decision is the file's."""
    first, second = simple_file(SDIST), simple_file(SDIST, url=f"{FILES}/other/{SDIST}")

    project = parsed(simple_page(first, second))

    assert [file.path for file in project.files] == [first["url"].removeprefix(FILES)]
    assert project.dropped == {"file name is listed twice": 1}


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"", "document is not JSON"),
        (b"<html>", "document is not JSON"),
        (b"\xff", "document is not JSON"),
        (b"[]", "document has members of other types than expected"),
        (b"{}", "document has members of other types than expected"),
        (encoded(simple_page(name=1)), "document has members of other types than expected"),
        (encoded(simple_page(files={})), "document has members of other types than expected"),
        (encoded(simple_page(name="other")), "page is of another project"),
        (
            encoded(simple_page(meta={"api-version": "2.0"})),
            "page is not of version 1 of the repository API",
        ),
        (
            encoded(simple_page(meta={"api-version": "1"})),
            "page is not of version 1 of the repository API",
        ),
        (b'{"files":' + b"[" * 100_000, "document is nested too deeply"),
        (
            encoded(simple_page(files=[0] * (FILES_MAX + 1))),
            "document has members of other types than expected",
        ),
        (b" " * (DOCUMENT_BYTES_MAX + 1), "document is too large"),
    ],
    ids=range(13),
)
def test_a_page_that_cannot_be_used(page: bytes, reason: str) -> None:
    """It is the upstream's fault: 502, never an empty index."""
    with pytest.raises(DocumentInvalid) as invalid:
        parse_json(page, "some-project", PAGE_URL, ORIGINS)

    assert str(invalid.value) == reason


def test_a_name_may_be_spelled_otherwise() -> None:
    """Upstreams may answer with the name as it was registered (PEP 503)."""
    assert parsed(simple_page(name="Some_Project")).name == "some-project"


def test_what_is_known_of_the_project_is_kept() -> None:
    """Clients guard against dependency confusion by PEP 708, and warn by PEP 792."""
    project = parsed(
        simple_page(
            meta={"api-version": "1.9", "tracks": [f"{INDEX}/a/", "javascript:x"]},
            **{
                "alternate-locations": [f"{INDEX}/b/"],
                "project-status": {"status": "archived", "reason": "see other"},
            },
        )
    )

    assert project.tracks == (f"{INDEX}/a/",)
    assert project.alternate_locations == (f"{INDEX}/b/",)
    assert (project.status, project.status_reason) == ("archived", "see other")


def test_a_file_is_found_by_its_name_and_told_from_one_elsewhere() -> None:
    wheel = "some_project-1.0+cpu-py3-none-any.whl"
    file = simple_file(wheel, url=f"{FILES}/a/some_project-1.0%2Bcpu-py3-none-any.whl")
    project = parsed(simple_page(simple_file(SDIST), file))
    listed = project.files[1]

    assert find_file(project, "pypi", listed.path) == (listed, True)
    assert find_file(project, "pypi", f"/a/{wheel}") == (listed, True)
    assert find_file(project, "npm", f"/a/{wheel}") == (listed, False)
    assert find_file(project, "pypi", f"/b/{wheel}") == (listed, False)
    assert find_file(project, "pypi", f"/a/../a/{wheel}") == (listed, False)
    assert find_file(project, "pypi", "/a/") == (None, False)


def test_releases_are_grouped_by_normalised_version() -> None:
    """`1.0` of a wheel and `01.0` of an sdist are one release."""
    project = parsed(simple_page(simple_file(WHEEL), simple_file("some_project-01.0.tar.gz")))

    assert [file.version for file in project.files] == ["1.0", "1.0"]


def test_a_cached_project_is_the_same() -> None:
    many = [simple_file(f"some_project-{n}.zip") for n in range(2 * ENTRIES_PER_CHUNK + 1)]
    project = parsed(simple_page(*many, simple_file(WHEEL, yanked="x")))

    assert len(project.files) == len(many) + 1
    assert decode_project(encode_project(project)) == project


@pytest.mark.parametrize("damage", [b"", b"pypi-project/0\n\x90", b"pypi-project/1\n", b"\x00"])
def test_cached_bytes_of_another_form_are_unknown(damage: bytes) -> None:
    """After an upgrade, documents are fetched again instead of being read wrongly."""
    with pytest.raises(EncodingUnknown):
        decode_project(damage)
