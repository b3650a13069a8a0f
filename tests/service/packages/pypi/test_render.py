"""Pages as clients are served them: blocked versions are marked, and files come from the proxy."""

import json
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag

import pytest

from service.packages.pypi.listing import parse_json
from service.packages.pypi.project import PypiProject
from service.packages.pypi.render import render_html, render_json
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

BASE = "https://countersign.example/proxy/acme/pypi"
WHEEL = "some_project-1.0-py3-none-any.whl"
SDIST = "some_project-1.0.tar.gz"
NEWER = "some_project-2.0.tar.gz"
REASON = "blocked by Countersign: <MAL-2024-1> & \"more\" 'here'"


def parsed(*files: Json, **changes: object) -> PypiProject:
    return parse_json(encoded(simple_page(*files, **changes)), "some-project", PAGE_URL, ORIGINS)


def served_json(project: PypiProject, **marks: str) -> Json:
    page: Json = json.loads(b"".join(render_json(project, BASE, marks)))
    return page


class Page(HTMLParser):
    """What a client reads in a page of the index."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.links: list[dict[str, Any]] = []
        self.meta: list[tuple[str | None, str | None]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "a":
            self.links.append({**attributes, "text": ""})
        elif tag == "meta" and "name" in attributes:
            self.meta.append((attributes["name"], attributes["content"]))

    def handle_data(self, data: str) -> None:
        if self.links:
            self.links[-1]["text"] += data.strip()


def served_html(project: PypiProject, **marks: str) -> Page:
    return Page(b"".join(render_html(project, BASE, marks)))


def test_a_marked_file_is_yanked_with_the_reason() -> None:
    """A pinned version is still found, requested and recorded."""
    project = parsed(simple_file(WHEEL), simple_file(SDIST, yanked="old"), simple_file(NEWER))

    marks = {WHEEL: REASON, SDIST: REASON}
    page = served_json(project, **marks)
    links = served_html(project, **marks).links

    assert [file["yanked"] for file in page["files"]] == [REASON, REASON, False]
    assert [link.get("data-yanked") for link in links] == [REASON, REASON, None]
    assert page["versions"] == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("yanked", "html"), [("broken", "broken"), ("", ""), (True, ""), (False, None)]
)
def test_upstreams_own_reason_is_kept(yanked: bool | str, html: str | None) -> None:
    project = parsed(simple_file(SDIST, yanked=yanked))

    assert served_json(project)["files"][0]["yanked"] == (yanked or yanked == "")
    assert served_html(project).links[0].get("data-yanked") == html


def test_a_file_is_served_from_the_proxy_at_upstreams_path() -> None:
    file = simple_file(SDIST)
    relative = simple_file(WHEEL, url=f"../../a%2Bb/{WHEEL}")
    project = parsed(file, relative)

    first, second = served_json(project)["files"]

    assert first["url"] == f"{BASE}/files/pypi{file['url'].removeprefix(FILES)}"
    assert second["url"] == f"{BASE}/files/npm/a%2Bb/{WHEEL}"
    for key in ("filename", "hashes", "requires-python", "size", "upload-time"):
        assert first[key] == file[key]


@pytest.mark.parametrize(
    ("filename", "upstream", "json_form", "html_form"),
    [
        (WHEEL, {"sha256": "a" * 64}, {"sha256": "a" * 64}, f"sha256={'a' * 64}"),
        (WHEEL, True, True, "true"),
        (WHEEL, False, True, "true"),
        (WHEEL, {"unknown": "1"}, True, "true"),
        (SDIST, True, None, None),
    ],
)
def test_metadata_is_announced_for_every_wheel(
    filename: str, upstream: object, json_form: object, html_form: str | None
) -> None:
    """It is extracted where upstream has none; else resolvers send HEAD and two ranges a wheel."""
    project = parsed(simple_file(filename, **{"core-metadata": upstream}))
    link = served_html(project).links[0]

    assert served_json(project)["files"][0].get("core-metadata") == json_form
    assert link.get("data-core-metadata") == link.get("data-dist-info-metadata") == html_form


def test_both_forms_have_the_same_files() -> None:
    project = parsed(
        simple_file(WHEEL, provenance=f"{INDEX}/integrity?a=1&b=2"),
        simple_file(SDIST, **{"requires-python": None}),
        simple_file(NEWER, **{"requires-python": ">=3.9,<\"4\" & '5'"}),
    )

    files, links = served_json(project)["files"], served_html(project).links

    assert [link["text"] for link in links] == [file["filename"] for file in files]
    assert [urldefrag(link["href"])[0] for link in links] == [file["url"] for file in files]
    assert [urldefrag(link["href"])[1] for link in links] == [
        f"sha256={file['hashes']['sha256']}" for file in files
    ]
    for attribute in ("requires-python", "provenance"):
        assert [link.get(f"data-{attribute}") for link in links] == [
            file.get(attribute) for file in files
        ]


@pytest.mark.parametrize(("upstream", "served"), [("1.0", "1.0"), ("1.1", "1.1"), ("1.99", "1.4")])
def test_the_version_of_the_api_is_what_is_kept_to(upstream: str, served: str) -> None:
    """Sizes that upstream does not state, as in 1.0, cannot be promised, as 1.1 does."""
    project = parsed(simple_file(SDIST), meta={"api-version": upstream})

    assert served_json(project)["meta"]["api-version"] == served
    assert ("pypi:repository-version", served) in served_html(project).meta


def test_what_is_known_of_the_project_is_passed_on() -> None:
    status = {"status": "quarantined", "reason": 'a "test"'}
    project = parsed(
        meta={"api-version": "1.4", "tracks": [f"{INDEX}/a/"]},
        **{"alternate-locations": [f"{INDEX}/b/"], "project-status": status},
    )

    page, html = served_json(project), served_html(project)

    assert page["meta"] == {"api-version": "1.4", "tracks": [f"{INDEX}/a/"]}
    assert page["alternate-locations"] == [f"{INDEX}/b/"]
    assert page["project-status"] == status
    assert html.meta == [
        ("pypi:repository-version", "1.4"),
        ("pypi:tracks", f"{INDEX}/a/"),
        ("pypi:alternate-locations", f"{INDEX}/b/"),
        ("pypi:project-status", "quarantined"),
        ("pypi:project-status-reason", 'a "test"'),
    ]


def test_a_project_without_files_has_a_valid_page() -> None:
    """PEP 700 asks for both lists."""
    page = served_json(parsed())

    assert (page["name"], page["versions"], page["files"]) == ("some-project", [], [])
    assert served_html(parsed()).links == []
