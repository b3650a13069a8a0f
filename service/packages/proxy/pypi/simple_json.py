"""The JSON form of the simple repository API (PEP 691, 700, 708, 714, 740 and 792)."""

from typing import Annotated, Final

import msgspec
from packaging.utils import canonicalize_name

from service.packages.proxy.documents import DocumentInvalid, decode_untrusted, refuse_oversized
from service.packages.proxy.origins import Origins
from service.packages.proxy.pypi.listing import (
    Link,
    Listing,
    bounded_urls,
    parse_minor,
    parse_status,
)
from service.packages.proxy.pypi.project import FILES_MAX, PypiProject


class _Meta(msgspec.Struct, rename="kebab"):
    api_version: str
    tracks: list[str] | None = None


class _Status(msgspec.Struct):
    status: str | None = None
    reason: str | None = None


class _Page(msgspec.Struct, rename="kebab"):
    meta: _Meta
    name: str
    files: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=FILES_MAX)]
    alternate_locations: list[str] | None = None
    project_status: _Status | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)
_LINK: Final = msgspec.json.Decoder(Link)


def parse_json(body: bytes, name: str, page_url: str, origins: Origins) -> PypiProject:
    """The project `name` (normalised), from the page fetched from `page_url`.

    Invalid entries are dropped and counted; the others are kept. Raises DocumentInvalid if the
    page is about another project, or not of version 1 of the API.
    """
    refuse_oversized(body)
    page = decode_untrusted(_PAGE.decode, body)
    minor = parse_minor(page.meta.api_version)
    if canonicalize_name(page.name) != name:
        raise DocumentInvalid("page is of another project")
    listing = Listing(name, page_url, origins)
    for raw in page.files:
        try:
            link = _LINK.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            listing.drop("file is described wrongly")
            continue
        listing.add(link)
    stated = page.project_status or _Status()
    status, reason = parse_status(stated.status, stated.reason)
    return PypiProject(
        name=name,
        files=listing.files,
        api_minor=minor,
        tracks=bounded_urls(page.meta.tracks or ()),
        alternate_locations=bounded_urls(page.alternate_locations or ()),
        status=status,
        status_reason=reason,
        dropped=dict(listing.dropped),
    )
