"""Paths of the API that the command line asks."""

from urllib.parse import quote

from service.core.errors import Invalid


def org_path(slug: str, *parts: str) -> str:
    """The API's path below an organisation; each part is escaped."""
    return _below("/api/v1/admin/orgs", slug, *parts)


def _below(root: str, slug: str, *parts: str) -> str:
    if slug in {"", ".", ".."}:
        raise Invalid("the organisation must be a slug, such as acme")
    return "/".join([root, *(quote(part, safe="") for part in (slug, *parts))])


def install_tokens_path(slug: str) -> str:
    """The endpoint at which CI jobs of an organisation get install tokens."""
    return _below("/api/v1/orgs", slug, "install-tokens")
