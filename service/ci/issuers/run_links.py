"""Links to the pages on which CI providers show their runs."""

import re
from collections.abc import Iterable
from string import Formatter
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from service.ci.providers import SUBJECTS, named_form

_FIELDS: Final = {"repository", "run_id"}
_RUN_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_PREFIXES: Final = "|".join(each.prefix for each in SUBJECTS if each.names_repository)
_REPOSITORY: Final = re.compile(rf"(?:{_PREFIXES})(?P<path>[\w.-]+(?:/[\w.-]+)+):", re.ASCII)


class HasRuns(Protocol):
    """An issuer: its provider, and the address of the pages of its runs."""

    @property
    def provider(self) -> str:
        """The suffix of `actor_source`."""

    @property
    def run_url(self) -> str | None:
        """The address, with `{repository}` and `{run_id}`; None if it is not known."""


def run_url_fault(template: str) -> str | None:
    """What is wrong with an issuer's `run_url`; None if nothing is."""
    try:
        fields = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError:
        return "has a brace that is not closed"
    if fields != _FIELDS:
        return "must have {repository} and {run_id}, and no other field"
    parts = urlsplit(template)
    if parts.scheme != "https" or not parts.hostname or "{" in parts.netloc:
        return "must be an https address, with the fields in its path"
    return None


def run_link(
    issuers: Iterable[HasRuns], provider: str, subject: str | None, run_id: str | None
) -> str | None:
    """The page of a run that a verified token named; None if it is not known.

    None also if the provider has several issuers with different addresses: rows do not say which.
    """
    urls = {issuer.run_url for issuer in issuers if issuer.provider == provider}
    repository = _REPOSITORY.match(named_form(subject or ""))
    if len(urls) != 1 or repository is None or not _RUN_ID.fullmatch(run_id or ""):
        return None
    (template,) = urls
    # Browsers resolve `..`: the link would lead to another page than that of the repository.
    if template is None or ".." in repository["path"].split("/"):
        return None
    return template.format(repository=quote(repository["path"]), run_id=run_id)
