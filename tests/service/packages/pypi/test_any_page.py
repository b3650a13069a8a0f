"""No page of an upstream, however made, leads a client past the proxy."""

import json
from typing import Any
from urllib.parse import unquote, urldefrag

from hypothesis import example, given
from hypothesis import strategies as st

from service.packages.proxy.documents import DocumentInvalid
from service.packages.proxy.origins import Origins
from service.packages.pypi.html import parse_html
from service.packages.pypi.listing import parse_json
from service.packages.pypi.project import PypiProject, decode_project, encode_project, find_file
from service.packages.pypi.render import render_html, render_json
from tests.service.packages.proxy.hostile import SEEDED, any_json, reason, url
from tests.service.packages.proxy.synthetic import (
    FILES,
    ORIGINS,
    PAGE_URL,
    Json,
    encoded,
    html_page,
    simple_file,
    simple_page,
)
from tests.service.packages.pypi.test_render import BASE, Page

SERVED = Origins({"proxy": "https://countersign.example"})
NAMES = (
    "some_project-1.0-py3-none-any.whl",
    "some_project-1.0.0.tar.gz",
    "some_project-1!2.0+local.1-1-py3-none-any.whl",
    "Some.PypiProject-2.0.tar.gz",
    "other-1.0.tar.gz",
    "some_project-1.0.egg",
    'some_project-1.0"><a>.tar.gz',
)


@st.composite
def files(draw: st.DrawFn) -> Json:
    """A file, mostly in order."""
    filename = draw(st.sampled_from(NAMES))
    file = simple_file(filename)
    if draw(st.booleans()):
        return file
    file["url"] = draw(url) + draw(st.sampled_from(["", f"/{filename}", f"/{filename}#sha256=1"]))
    file["yanked"] = draw(reason | st.booleans())
    file["requires-python"] = draw(st.none() | reason)
    file["core-metadata"] = draw(st.sampled_from([None, True, {"sha256": "a" * 64}, {"x": "y"}]))
    if draw(st.booleans()):
        file[draw(st.sampled_from(sorted(file)))] = draw(any_json)
    return file


def check(project: PypiProject, marks: dict[str, str]) -> None:
    """What must hold of every project that was parsed."""
    assert decode_project(encode_project(project)) == project
    served = json.loads(b"".join(render_json(project, BASE, marks)))
    links = Page(b"".join(render_html(project, BASE, marks))).links
    assert len(served["files"]) == len(links) == len(project.files)
    for file, entry, link in zip(project.files, served["files"], links, strict=True):
        origin, path = entry["url"].removeprefix(f"{BASE}/files/").split("/", 1)
        assert entry["url"].startswith(f"{BASE}/files/")
        assert ".." not in unquote(path).split("/")
        assert find_file(project, origin, f"/{path}") == (file, True)
        assert find_file(project, origin, f"/{unquote(path)}") == (file, True)
        assert (entry["filename"], entry["hashes"]) == (file.filename, file.hashes)
        assert urldefrag(link["href"])[0] == entry["url"]
        assert link["text"] == entry["filename"] == unquote(path).rpartition("/")[2]
        assert link.get("data-requires-python") == entry.get("requires-python")
        html_yanked = link["data-yanked"] or True if "data-yanked" in link else False
        assert html_yanked == entry["yanked"]
        assert entry["yanked"] == (marks[file.filename] or True) if file.filename in marks else True


def check_served_again(project: PypiProject) -> None:
    """A second proxy in front of this one serves the same files."""
    page = b"".join(render_json(project, BASE, {}))
    again = parse_json(page, project.name, f"{BASE}/simple/", SERVED)
    as_html = parse_html(
        b"".join(render_html(project, BASE, {})), project.name, f"{BASE}/simple/", SERVED
    )

    assert again.dropped == as_html.dropped == {}
    names = [(file.filename, file.version) for file in project.files]
    assert [(file.filename, file.version) for file in again.files] == names
    assert [(file.filename, file.version) for file in as_html.files] == names


marks = st.dictionaries(st.sampled_from(NAMES), reason)


@SEEDED
@given(st.lists(files(), max_size=6), marks)
@example([simple_file(NAMES[0]), simple_file(NAMES[1], yanked="x")], {NAMES[0]: "\"'<>&"})
def test_any_files_in_json(page: list[Json], marked: dict[str, str]) -> None:
    project = parse_json(encoded(simple_page(*page)), "some-project", PAGE_URL, ORIGINS)

    check(project, marked)
    check_served_again(project)
    assert len(project.files) + sum(project.dropped.values()) == len(page)


@SEEDED
@given(st.lists(files(), max_size=6), st.text(max_size=30), marks)
def test_any_files_in_html(page: list[Json], head: str, marked: dict[str, str]) -> None:
    """Old registries have no other form."""
    good = [
        file for file in page if isinstance(file["url"], str) and isinstance(file["hashes"], dict)
    ]
    body = html_page(*({**simple_file(NAMES[0]), "url": file["url"]} for file in good), head=head)
    try:
        project = parse_html(body, "some-project", PAGE_URL, ORIGINS)
    except DocumentInvalid:
        return

    check(project, marked)
    check_served_again(project)


@SEEDED
@given(any_json, any_json, any_json, any_json)
def test_any_members(meta: Any, name: Any, listed: Any, more: Any) -> None:
    page = simple_page(simple_file(NAMES[0]), **{"project-status": more})
    for body in (
        page | {"meta": meta},
        page | {"name": name},
        page | {"files": listed},
        page,
        more,
    ):
        try:
            project = parse_json(encoded(body), "some-project", PAGE_URL, ORIGINS)
        except DocumentInvalid:
            continue
        check(project, {})


@SEEDED
@given(st.binary(max_size=200) | st.text("<a href=\"/>'=!- \n&;#x0", max_size=200).map(str.encode))
def test_any_bytes(body: bytes) -> None:
    for parse in parse_json, parse_html:
        try:
            project = parse(body, "some-project", PAGE_URL, ORIGINS)
        except DocumentInvalid:
            continue
        check(project, {})
        assert FILES.encode() in body or project.files == []
