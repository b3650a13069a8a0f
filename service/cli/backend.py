"""What commands can do on a server or on this machine's data dir, answered in the API's JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from service.cli.context import CommandContext

Parameters = Mapping[str, Sequence[str]]
"""Query parameters of the API, name to values."""

Form = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportForm:
    """The form of an exported file, see the API's parameters."""

    format: str
    compress: str | None
    is_raw: bool


@dataclass(frozen=True, slots=True)
class ExportScope:
    """Which rows an export has. `since` and `until` are the bounds that applied.

    `lost_rows` of the days in between were given up.

    Values that a server does not state are None, and so are missing bounds and floors.
    """

    rows: int
    export_id: str | None
    since: str | None
    until: str | None
    retention_floor: str | None
    lost_rows: int


@dataclass(frozen=True, slots=True)
class ExportSink:
    """Where an export goes.

    `begin` is called before the first byte, `show` with the rows done and all rows.
    """

    file: BinaryIO
    begin: Callable[[ExportScope], None]
    show: Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written as a whole."""

    scope: ExportScope
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingDraft:
    """A binding to create; `project` and `team` are ids, or on a data dir also names."""

    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: Sequence[str]
    project: str | None
    team: str | None


@dataclass(frozen=True, slots=True)
class TokenOrClaims:
    """What to explain: a token, or claims in JSON, as they were read."""

    raw: bytes
    is_claims: bool
    project: str | None


class Backend(Protocol):
    """Where a command works. Every method raises Refusal."""

    @property
    def place(self) -> str | None:
        """The server, for titles; None for the data dir."""

    async def default_org(self) -> str | None:
        """The organisation to work on if none is named, or None."""

    def data_dir(self, what: str) -> CommandContext:
        """The services over the data dir, for what servers do not offer. Raises Invalid."""

    async def audit_page(self, slug: str, parameters: Parameters) -> Form:
        """One page of rows."""

    async def unknown_values(self, slug: str, parameters: Parameters) -> list[Form]:
        """The values of a query that no row has."""

    async def audit_entry(self, slug: str, audit_id: str) -> Form:
        """One row."""

    async def audit_accepted(self, slug: str, parameters: Parameters) -> Form:
        """The rows accepted after one of them."""

    async def audit_export(
        self, slug: str, parameters: Parameters, form: ExportForm, sink: ExportSink
    ) -> Exported:
        """Write all rows of a query to `sink`."""

    async def exports_page(self, slug: str, parameters: Parameters) -> Form:
        """A page of the exports."""

    async def export_entry(self, slug: str, export_id: str) -> Form:
        """One export."""

    async def export_receipt(self, slug: str, export_id: str) -> Form:
        """The receipt of a finished export."""

    async def list_bindings(self, slug: str, state: str | None, as_of: str | None) -> list[Form]:
        """The organisation's bindings, newest first."""

    async def get_binding(self, slug: str, binding_id: str) -> Form:
        """One binding."""

    async def create_binding(self, slug: str, draft: BindingDraft) -> Form:
        """Create a binding; returns it."""

    async def revoke_binding(self, slug: str, binding_id: str, reason: str | None) -> None:
        """Revoke a binding."""

    async def list_exceptions(self, slug: str, state: str | None, limit: int | None) -> Form:
        """Requests for exceptions from the policy, newest first."""

    async def decide_exception(
        self, slug: str, exception_id: str, decision: str, reason: str | None
    ) -> Form:
        """Allow or decline a request (`allow`, `decline`); returns it."""

    async def list_api_keys(self, slug: str) -> Form:
        """The API keys, newest first, ended ones included."""

    async def issue_api_key(self, slug: str, asked: Form) -> Form:
        """Issue a key as the API's request asks; returns it with its secret."""

    async def rotate_api_key(self, slug: str, key_id: str, overlap: str) -> Form:
        """Issue a key in place of a live one; returns it with its secret."""

    async def revoke_api_key(self, slug: str, key_id: str) -> None:
        """Revoke a key."""

    async def explain(self, slug: str, asked: TokenOrClaims) -> Form:
        """Why a token is trusted or not."""

    async def rejected(self, slug: str, parameters: Parameters) -> Form:
        """The CI identities that were rejected."""
