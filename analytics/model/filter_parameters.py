"""The query parameters that filter rows, one entry for each."""

import re
from dataclasses import dataclass
from typing import Final

from analytics.model.events import Decision, Event
from analytics.model.rows import ACTOR_SOURCES, Ecosystem, VerdictSource

_CI_SOURCE: Final = "oidc_"
_CI_SOURCES: Final = re.compile(rf"{_CI_SOURCE}[a-z0-9_]+", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SHA256_BEGINNING: Final = re.compile(r"[0-9a-f]{0,64}", re.ASCII)
_SHA256_FORM: Final = "64 hex digits in lower case, or their beginning and *"


@dataclass(frozen=True, slots=True)
class FilterParameter:
    """One query parameter, the column that it filters, and its label for people.

    In the search box, `aliases` name it as well.
    `known` has every value the column can hold, or is None where any text may occur. With
    `has_ci_sources` it can also hold `oidc_` and a provider's name: issuers are configured. With
    `is_sha256` it holds digests in lower-case hex only.
    """

    name: str
    column: str
    label: str
    description: str
    example: str
    aliases: tuple[str, ...] = ()
    takes_prefix: bool = False
    known: tuple[str, ...] | None = None
    has_ci_sources: bool = False
    is_sha256: bool = False

    @property
    def summary(self) -> str:
        """What the parameter means, in Markdown. A closed set of values is listed."""
        prefix = "; a trailing `*` makes a prefix" if self.takes_prefix else ""
        return f"{self.description}{prefix}{f': {self.listed}' if self.known else ''}."

    @property
    def refusal(self) -> str:
        """What an error demands of a value that the column cannot hold."""
        return _SHA256_FORM if self.is_sha256 else f"one of {self.listed}"

    @property
    def listed(self) -> str:
        """The known values, as listed in errors and help texts."""
        return ", ".join([*(self.known or ()), *[f"{_CI_SOURCE}<provider>"] * self.has_ci_sources])

    def can_match(self, text: str, *, is_prefix: bool) -> bool:
        """Whether a row's value can be `text` or, if `is_prefix`, begin with it."""
        if self.is_sha256:
            form = _SHA256_BEGINNING if is_prefix else _SHA256
            return form.fullmatch(text) is not None
        if self.known is None:
            return True
        if text in self.known or (self.has_ci_sources and _CI_SOURCES.fullmatch(text)):
            return True
        beginnings = (*self.known, _CI_SOURCE) if self.has_ci_sources else self.known
        return is_prefix and any(value.startswith(text) for value in beginnings)

    def with_matching_case(self, text: str, *, is_prefix: bool) -> str | None:
        """`text` in the case in which it can match; None if its case is not the problem."""
        spellings = (text.lower(), text.upper())
        return next(
            (spelling for spelling in spellings if self.can_match(spelling, is_prefix=is_prefix)),
            None,
        )


FILTER_PARAMETERS: Final = (
    FilterParameter(
        "event",
        "event",
        "Event",
        "Event string; repeat for OR, `!` before it negates",
        "blocklist_hit",
        known=tuple(Event),
    ),
    FilterParameter(
        "package",
        "package_name",
        "Package",
        "Package name",
        "left-pad",
        takes_prefix=True,
    ),
    FilterParameter("version", "version", "Version", "Package version", "1.3.0"),
    FilterParameter(
        "decision", "decision", "Decision", "Install decision", "BLOCKED", known=tuple(Decision)
    ),
    FilterParameter(
        "actor",
        "actor",
        "Actor",
        "Actor, such as an API key id",
        "key_5d7f9h1k3m5p7r9t",
        takes_prefix=True,
        aliases=(
            "key",
            "member",
            "by",
        ),
    ),
    FilterParameter(
        "actor_source",
        "actor_source",
        "Actor source",
        "How the actor proved who they are",
        "oidc_*",
        takes_prefix=True,
        known=ACTOR_SOURCES,
        has_ci_sources=True,
    ),
    FilterParameter(
        "subject",
        "subject",
        "Subject",
        "What the row is about",
        "repo:acme/*",
        takes_prefix=True,
        aliases=(
            "job",
            "sub",
        ),
    ),
    FilterParameter(
        "oidc_binding_id",
        "oidc_binding_id",
        "Binding",
        "The binding that the row was attributed to",
        "obind_7f3k9m2p4q8r1s5t",
        aliases=("binding",),
    ),
    FilterParameter(
        "verdict_source",
        "verdict_source",
        "Surface",
        "The surface that produced the row",
        "proxy",
        known=tuple(VerdictSource),
        aliases=("surface",),
    ),
    FilterParameter(
        "request_id",
        "request_id",
        "Request",
        "The request that produced the row",
        "req_019b3c5d7e8f0123456789ab",
        aliases=("request",),
    ),
    FilterParameter(
        "source_ip",
        "source_ip",
        "Source address",
        "The address the request came from",
        "192.0.2.7",
        aliases=(
            "ip",
            "address",
        ),
    ),
    FilterParameter(
        "ecosystem",
        "ecosystem",
        "Ecosystem",
        "The package's ecosystem",
        "npm",
        known=tuple(sorted(Ecosystem)),
    ),
    FilterParameter(
        "repository_id",
        "repository_id",
        "Repository",
        "The repository id that a verified CI token named",
        "123456789",
        aliases=(
            "repo",
            "repository",
        ),
    ),
    FilterParameter(
        "run_id",
        "run_id",
        "CI run",
        "The CI run that a verified CI token named",
        "9876543210",
        aliases=("run",),
    ),
    FilterParameter(
        "token_id",
        "token_id",
        "CI token",
        "The id (`jti`) of a verified CI token",
        "6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11",
        aliases=("token",),
    ),
    FilterParameter(
        "file_name",
        "file_name",
        "File",
        "The file that a package manager asked the install proxy for",
        "left_pad-1.3.0-py3-none-any.whl",
        takes_prefix=True,
        aliases=("file",),
    ),
    FilterParameter(
        "file_sha256",
        "file_sha256",
        "SHA-256 of the file",
        "The SHA-256 of that file, in lower-case hex",
        "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        takes_prefix=True,
        aliases=("sha256",),
        is_sha256=True,
    ),
    FilterParameter(
        "client",
        "client",
        "Client",
        "The package manager that asked the install proxy, and its version",
        "pip/26.3",
        takes_prefix=True,
    ),
)
