"""The HTML form of the simple repository API (PEP 503, 592, 629, 658, 708, 714 and 740).

Old registries have only this form. The standard library's parser rescans the page for each unclosed
tag: 60 kB of `<a ` take it half a minute. So tags are found by a regular expression for the three
elements that matter, whose time is proportional to the page's length.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import urljoin

from service.packages.proxy.documents import DocumentInvalid, refuse_oversized
from service.packages.proxy.origins import URL_CHARS_MAX, Origins
from service.packages.pypi.listing import OF_ANOTHER_PROJECT, Link, Listing, parse_minor
from service.packages.pypi.project import FILES_MAX, PypiProject

TAGS_MAX: Final = FILES_MAX + 1000
ATTRIBUTES_MAX: Final = 32
"""Attributes of one element; further ones are ignored."""

VALUE_CHARS_MAX: Final = 4096

_DIGEST: Final = re.compile(r"#(?:md5|sha\d+)=[0-9a-fA-F]{32,}")
"""How an index names a file's digest (PEP 503)."""

_STATUS: Final = ("pypi:project-status", "pypi:project-status-reason")

# Possessive quantifiers prevent backtracking, which a hostile page could make quadratic or worse.
_ATTRIBUTE: Final = re.compile(
    r"""
    \s++ (?P<name>[^\s"'<>/=]++)
    (?: \s*+ = \s*+ (?: "(?P<double>[^"]*+)" | '(?P<single>[^']*+)' | (?P<bare>[^\s"'<>=`]++) ) )?+
    """,
    re.VERBOSE,
)
_UNNAMED: Final = re.sub(r"[?]P<[a-z]+>", "?:", _ATTRIBUTE.pattern)

# A tag without an end matches as far as it looks like a tag, and the search continues after that:
# no part of a page is searched twice.
_TAG: Final = re.compile(
    rf"""
    <!-- (?: .*?--> | .* )
    | <(?P<tag>a|base|meta) (?P<attributes>(?:{_UNNAMED})*+) \s*+ (?P<end>/?>)?+
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


class _Tag(NamedTuple):
    name: str
    attributes: dict[str, str]


def parse_html(body: bytes, name: str, page_url: str, origins: Origins) -> PypiProject:
    """The project `name` (normalised), from the page fetched from `page_url`.

    The page does not name its project: files of other projects are dropped and counted.
    Raises DocumentInvalid if the page is not of version 1 of the API, or not of this project.
    """
    refuse_oversized(body)
    tags = list(islice(_tags(body.decode("utf-8", errors="replace")), TAGS_MAX + 1))
    if len(tags) > TAGS_MAX:
        raise DocumentInvalid("page has too many elements")
    bases = [base["href"] for kind, base in tags if kind == "base" and "href" in base]
    meta: dict[str, list[str]] = {}
    for kind, attributes in tags:
        if kind == "meta" and attributes.get("name", "").startswith("pypi:"):
            meta.setdefault(attributes["name"], []).append(attributes.get("content", ""))
    minor = min(map(parse_minor, meta.get("pypi:repository-version", ["1.0"])))
    listing = Listing(name, _joined(page_url, bases[0]) if bases else page_url, origins)
    links = [_link(attributes) for kind, attributes in tags if kind == "a" and "href" in attributes]
    for link in links:
        listing.add(link)
    project = listing.project(
        minor,
        meta.get("pypi:tracks", ()),
        meta.get("pypi:alternate-locations", ()),
        *(meta.get(key, [None])[0] for key in _STATUS),
    )
    if not project.files:
        _check_index(meta, links, listing)
    return project


def _check_index(meta: Mapping[str, object], links: Sequence[Link], listing: Listing) -> None:
    """Raise DocumentInvalid if a page without files is not an index page of the project.

    A captive portal or an error page answers 200 in HTML, too.
    """
    if listing.dropped[OF_ANOTHER_PROJECT]:
        raise DocumentInvalid("page is of another project")
    if not meta and not any(_DIGEST.search(link.url) for link in links):
        raise DocumentInvalid("page is not that of an index")


def _tags(page: str) -> Iterator[_Tag]:
    """The page's links, bases and metas. Of a repeated attribute, the first one counts."""
    for match in _TAG.finditer(page):
        if not match["end"]:
            continue
        attributes: dict[str, str] = {}
        for attribute in islice(_ATTRIBUTE.finditer(match["attributes"]), ATTRIBUTES_MAX):
            value = attribute["double"] or attribute["single"] or attribute["bare"] or ""
            # We use no longer values, and `unescape` fails on numbers with too many digits.
            if len(value) <= VALUE_CHARS_MAX:
                attributes.setdefault(attribute["name"].lower(), unescape(value))
        yield _Tag(match["tag"].lower(), attributes)


def _link(attributes: dict[str, str]) -> Link:
    """The link in the form of PEP 691. Its text is for people and is ignored."""
    return Link(
        url=attributes["href"].strip(),
        requires_python=attributes.get("data-requires-python"),
        yanked=attributes.get("data-yanked"),
        core_metadata=_metadata(attributes.get("data-core-metadata")),
        dist_info_metadata=_metadata(attributes.get("data-dist-info-metadata")),
        provenance=attributes.get("data-provenance"),
    )


def _metadata(value: str | None) -> bool | dict[str, str] | None:
    """The value of `data-core-metadata`: `true`, or a digest such as `sha256=…` (PEP 658)."""
    algorithm, is_digest, digest = (value or "").partition("=")
    if is_digest:
        return {algorithm: digest}
    return None if value is None else value == "true"


def _joined(page_url: str, base: str) -> str:
    """The base URL of the page's links: `page_url` itself if `base` is malformed."""
    try:
        joined = urljoin(page_url, base.strip())
    except ValueError:
        return page_url
    return joined if len(joined) <= URL_CHARS_MAX else page_url
