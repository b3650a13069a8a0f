"""Pages of old registries, which have no JSON, say the same in HTML."""

from dataclasses import dataclass
from html.parser import HTMLParser

import pytest

from service.packages.proxy.documents import DocumentInvalid
from service.packages.pypi.html import TAGS_MAX, parse_html
from service.packages.pypi.listing import parse_json
from service.packages.pypi.project import PypiProject
from tests.budgets import budget
from tests.service.packages.proxy.synthetic import (
    FILES,
    INDEX,
    ORIGINS,
    PAGE_URL,
    encoded,
    html_page,
    simple_file,
    simple_page,
)

WHEEL = "some_project-1.0-py3-none-any.whl"
SDIST = "some_project-1.0.tar.gz"
META = '<meta name="pypi:repository-version" content="1.0">'


def parsed(page: str | bytes) -> PypiProject:
    body = page.encode() if isinstance(page, str) else page
    return parse_html(body, "some-project", PAGE_URL, ORIGINS)


def test_html_says_what_json_says() -> None:
    files = [
        simple_file(SDIST, yanked='<broken> & "more"', **{"requires-python": None}),
        simple_file(WHEEL, size=None, **{"upload-time": None}),
    ]
    files[0] |= {"size": None, "upload-time": None}
    page = encoded(simple_page(*files, meta={"api-version": "1.0"}, **{"project-status": None}))

    assert parsed(html_page(*files)) == parse_json(page, "some-project", PAGE_URL, ORIGINS)


def test_relative_links_count_from_the_base() -> None:
    """The first base element counts, itself relative to the page's URL."""
    head = f'<base href="{FILES}/x/y/"><base href="https://evil.example/">'

    project = parsed(html_page(simple_file(SDIST), head=head, relative=True))
    without = parsed(html_page(simple_file(SDIST), relative=True))

    assert [file.origin for file in project.files] == ["pypi"]
    assert [file.origin for file in without.files] == ["npm"]
    assert project.files[0].path == without.files[0].path


def test_a_base_cannot_lead_elsewhere() -> None:
    """A page does not decide which origins are accepted."""
    head = '<base href="https://evil.example/">'

    project = parsed(html_page(simple_file(SDIST), head=head, relative=True))

    assert project.files == []
    assert project.dropped == {"origin is not configured": 1}


@pytest.mark.parametrize(
    ("link", "yanked"),
    [
        (f"<a href='/{SDIST}'>x</a>", False),
        (f"<A HREF = /{SDIST} data-yanked>x</A>", True),
        (f'<a\nrel="internal"\tdata-yanked=""\n href="/{SDIST}"/>', True),
        (f'<a data-yanked="&lt;a&gt; > &amp;" href="/{SDIST}">', "<a> > &"),
        (f'<a href="/{SDIST}" data-yanked=one data-yanked=two href="/x">', "one"),
        (f'<a href="&#47;{SDIST}">', False),
        (f'<a href="  /{SDIST}\n">', False),
        (f'<a href="/{SDIST}" title="{"9" * 5000}">', False),
        (f'<a href="/{SDIST}" title="&#{"9" * 4095};" data-yanked="{"y" * 4097}">', False),
        (f'<a <a href="/{SDIST}">', False),
        (f'<abbr href="/y"><a href="/{SDIST}">', False),
        (f'<!-- <a href="/{WHEEL}"> --><a href="/{SDIST}">', False),
        (f'<a href="/{SDIST}"><!-- <a href="/{WHEEL}">', False),
    ],
)
def test_a_link_may_be_written_in_many_ways(link: str, yanked: bool | str) -> None:
    project = parsed(link)

    assert [(file.filename, file.yanked) for file in project.files] == [(SDIST, yanked)]


def test_links_that_are_no_files_are_dropped() -> None:
    links = '<a href="https://example.org/">Home</a><a>x</a><a href="../">Parent</a>'
    project = parsed(META + links)

    assert project.files == []
    assert project.dropped == {"origin is not configured": 1, "URL path is unsafe": 1}


def test_meta_elements_are_kept() -> None:
    """PEP 629, 708 and 792 in HTML."""
    project = parsed(
        '<meta name="pypi:repository-version" content="1.3">'
        f'<meta name="pypi:tracks" content="{INDEX}/a/">'
        f'<meta name="pypi:alternate-locations" content="{INDEX}/b/">'
        f'<meta name="pypi:alternate-locations" content="{INDEX}/c/">'
        '<meta name="pypi:project-status" content="deprecated">'
    )

    assert (project.api_minor, project.status, project.status_reason) == (3, "deprecated", None)
    assert project.tracks == (f"{INDEX}/a/",)
    assert project.alternate_locations == (f"{INDEX}/b/", f"{INDEX}/c/")


def test_a_page_of_too_many_links_is_refused() -> None:
    with pytest.raises(DocumentInvalid, match="too many elements"):
        parsed('<a href="/">' * (TAGS_MAX + 1))


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<!doctype html><title>Sign in</title><form action=/login></form>",
        '<html><a href="/login">Sign in to the network</a> <a href="https://example.com/">Help</a>',
        '{"files": []}',
    ],
)
def test_a_page_that_is_no_index_is_refused(page: str) -> None:
    """A captive portal, or an error page, answers in HTML with status 200."""
    with pytest.raises(DocumentInvalid, match="not that of an index"):
        parsed(page)


def test_a_page_of_another_project_is_refused() -> None:
    with pytest.raises(DocumentInvalid, match="another project"):
        parsed(html_page(simple_file("another-1.0.tar.gz"), head=META))


@pytest.mark.parametrize(
    "page",
    [META, f'<a href="{FILES}/some_project-1.0.egg#sha256={"a" * 64}">some_project-1.0.egg</a>'],
)
def test_an_index_without_files_that_can_be_installed_is_one(page: str) -> None:
    assert parsed(page).files == []


def test_a_page_of_version_2_is_refused() -> None:
    """Its meaning is unknown (PEP 629)."""
    with pytest.raises(DocumentInvalid, match="version 1"):
        parsed('<meta name="pypi:repository-version" content="2.0">')


@pytest.mark.parametrize(
    "part",
    [
        "<",
        "<!--",
        "<a ",
        '<a href="',
        "<a href='\"",
        "<a x='<a y=\"",
        "<a x=1 ",
        "<a b=",
        " x",
        "&#",
        "<a" + " x" * 50,
    ],
)
def test_an_endless_tag_costs_no_more_than_its_length(part: str) -> None:
    """4 MB take a fraction of a second; the standard library's parser would exceed any limit."""
    page = part * ((budget(1, 4) << 20) // len(part))

    assert parsed(f"{META}<a {page}").files == []


@dataclass
class Links(HTMLParser):
    """The links that the standard library's parser finds."""

    def __post_init__(self) -> None:
        super().__init__()
        self.hrefs: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs.append(dict(attrs).get("href"))


def test_the_same_links_are_found_as_by_a_complete_parser() -> None:
    """The expression knows three elements; a complete parser must not find more."""
    files = [simple_file(f"some_project-{number}.tar.gz", yanked="a>b") for number in range(50)]
    page = html_page(*files)
    links = Links()
    links.feed(page.decode())

    project = parsed(page)

    assert [
        f"{FILES}{file.path}#sha256={file.hashes['sha256']}" for file in project.files
    ] == links.hrefs
