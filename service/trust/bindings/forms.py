"""The API's representation of bindings: camelCase, timestamps with milliseconds."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct

from analytics.model.instants import format_ms, optional_ms
from service.core.text_rules import REASON_MAX, REFUSED_CHARACTERS
from service.store.tables import Binding, Origin
from service.trust.bindings.listing import LIMIT_MAX, PAGE_ROWS
from service.trust.bindings.rules import (
    EVENT_NAME_MAX,
    EVENT_NAMES_MAX,
    REPOSITORY_ID_DIGITS_MAX,
    SUB_PATTERN_MAX,
)
from service.web.parameter_types import Cursor, InstantOrDate, Omittable, TimestampMs
from service.web.responses import encoded

PLAIN_PATTERN = f"^[^{REFUSED_CHARACTERS}]+$"

BindingId = Annotated[
    str, Meta(description="Prefix `obind_`.", examples=["obind_7f3k9m2p4q8r1s5t"])
]
Issuer = Annotated[
    str,
    Meta(
        min_length=1,
        description="Issuer URL; must be on the allowlist.",
        examples=["https://token.actions.githubusercontent.com"],
    ),
]
Sub = Annotated[
    str,
    Meta(
        description="The full `sub` claim, compared exactly.",
        examples=["repo:acme/payments:ref:refs/heads/main"],
    ),
]
PrincipalName = Annotated[
    str,
    Meta(
        description="`system:admin-token`, `system:cli` or `<identity provider>:<member id>`.",
        examples=["github:mem_2b4d6f8h0j1k3m5n"],
    ),
]


ExactSub = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=SUB_PATTERN_MAX,
        pattern=PLAIN_PATTERN,
        description="The full `sub` claim. No wildcards, no whitespace.",
    ),
]
RepositoryId = Annotated[str, Meta(pattern=r"^0*[1-9][0-9]*$", max_length=REPOSITORY_ID_DIGITS_MAX)]
RepositoryNumber = Annotated[
    int, Meta(ge=1, extra_json_schema={"maximum": 10**REPOSITORY_ID_DIGITS_MAX - 1})
]
EventNames = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=EVENT_NAME_MAX, pattern=PLAIN_PATTERN)]],
    Meta(max_length=EVENT_NAMES_MAX),
]
TeamId = Annotated[str, Meta(description="The team of a `team_admin` binding.")]
# Narrower than the check itself, which also accepts other white space.
Reason = Annotated[str, Meta(max_length=REASON_MAX, pattern=f"^([^{REFUSED_CHARACTERS}]| )*$")]


class BindingRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The CI identity to trust."""

    issuer: Issuer
    sub_pattern: ExactSub
    repository_id: Annotated[
        RepositoryId | RepositoryNumber,
        Meta(description="Numeric repository id; required by some issuers."),
    ]
    origin: Literal["org_admin", "team_admin"]
    event_names: Annotated[EventNames, Meta(description="Empty or missing: any event.")] | None = (
        None
    )
    project_id: (
        Annotated[str, Meta(description="Limits the binding to one project's API keys.")] | None
    ) = None
    team_id: TeamId | None = None


REQUEST_EXAMPLE = {
    "issuer": "https://token.actions.githubusercontent.com",
    "sub_pattern": "repo:acme/payments:ref:refs/heads/main",
    "repository_id": "123456789",
    "event_names": ["push", "workflow_dispatch"],
    "origin": "org_admin",
}


REPLACE_EXAMPLE = {"event_names": ["push", "workflow_dispatch", "schedule"]}


class ReplaceRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """What changes; fields that are missing are taken over from the replaced binding."""

    issuer: Omittable[Annotated[str, Meta(description="As in a create.")]] = UNSET
    sub_pattern: Omittable[ExactSub] = UNSET
    repository_id: Omittable[RepositoryId] = UNSET
    event_names: Omittable[
        Annotated[EventNames, Meta(description="Empty or null: any event.")] | None
    ] = UNSET
    origin: Omittable[Literal["org_admin", "team_admin"]] = UNSET
    project_id: Omittable[
        Annotated[str, Meta(description="A project of the organisation; null: no limit.")] | None
    ] = UNSET
    team_id: Omittable[TeamId | None] = UNSET
    reason: Omittable[
        Annotated[
            Reason,
            Meta(description="Why; stored with the replaced binding after `replaced by <id>: `."),
        ]
        | None
    ] = UNSET


class RevokeRepositoryRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The repository whose active bindings are revoked."""

    issuer: Issuer
    repository_id: RepositoryId | RepositoryNumber
    reason: Annotated[Reason, Meta(description="Why; stored with each binding.")] | None = None
    binding_ids: (
        Annotated[
            list[str], Meta(description="If given, exactly these must be active; otherwise 409.")
        ]
        | None
    ) = None


REVOKE_REPOSITORY_EXAMPLE = {
    "issuer": "https://token.actions.githubusercontent.com",
    "repository_id": "123456789",
    "reason": "the repository is compromised",
}


class ListQuery(Struct, kw_only=True):
    """Which bindings to list; by default all, in one answer."""

    state: Omittable[
        Annotated[Literal["active", "revoked"], Meta(description="Only bindings in this state.")]
    ] = UNSET
    asOf: Omittable[  # noqa: N815 - beside camelCase answers
        Annotated[
            InstantOrDate,
            Meta(
                description="Only those that were active (or in `state`) at this instant; a date is"
                " its first instant, UTC."
            ),
        ]
    ] = UNSET
    active: Omittable[
        Annotated[
            bool,
            Meta(description="`true` is `state=active`, `false` is `state=revoked`."),
        ]
    ] = UNSET
    issuer: Omittable[Annotated[str, Meta(description="Only of this issuer.")]] = UNSET
    sub: Omittable[
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=SUB_PATTERN_MAX,
                description="Only with exactly this `subPattern`.",
            ),
        ]
    ] = UNSET
    repository_id: Omittable[
        Annotated[RepositoryId, Meta(description="Only of this repository; ids differ by issuer.")]
    ] = UNSET
    limit: Omittable[
        Annotated[
            int,
            Meta(
                ge=1,
                le=LIMIT_MAX,
                description=f"At most so many; with `cursor` alone {PAGE_ROWS}. Without: all.",
            ),
        ]
    ] = UNSET
    cursor: Omittable[Cursor] = UNSET


class RevokeQuery(Struct, kw_only=True):
    """Why the binding is revoked."""

    reason: Omittable[
        Annotated[Reason, Meta(description="Stored with the binding as `revokedReason`.")]
    ] = UNSET


class CreatedBinding(Struct, kw_only=True, rename="camel"):
    """The binding that was created."""

    id: BindingId
    issuer: Issuer
    sub_pattern: Sub
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin", "team_admin", "platform_admin"]
    added_at: TimestampMs


class ReplacedBinding(CreatedBinding, kw_only=True, rename="camel"):
    """The binding that was created, and the one that it replaces."""

    replaces: BindingId


class ListedBinding(Struct, kw_only=True, rename="camel"):
    """A binding with all its fields."""

    id: BindingId
    project_id: str | None
    team_id: str | None
    issuer: Issuer
    sub_pattern: Sub
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin", "team_admin", "platform_admin"]
    added_by: PrincipalName
    added_at: TimestampMs
    revoked_at: TimestampMs | None
    revoked_by: PrincipalName | None
    revoked_reason: str | None
    last_used_at: TimestampMs | None
    use_count: int


class BindingDetail(ListedBinding, kw_only=True, rename="camel"):
    """A binding with all its fields, and whether it matches tokens now."""

    effective: Annotated[
        bool,
        Meta(description="False if revoked, or if a team's binding lost its org_admin envelope."),
    ]
    ineffective_reason: str | None


class BindingList(Struct, kw_only=True):
    """An organisation's bindings, newest first; `count` is the number of those in this answer.

    `next_cursor` is there only if `limit` or `cursor` was given, and null on the last page.
    """

    org: str
    count: int
    bindings: list[ListedBinding]
    next_cursor: Omittable[BindingId | None] = UNSET


class Revoked(Struct, kw_only=True):
    """The binding that was revoked."""

    revoked: BindingId


class RevokedRepository(Struct, kw_only=True):
    """The bindings that were revoked, newest first; `count` is their number."""

    count: int
    revoked: list[BindingId]


def created_form(binding: Binding) -> CreatedBinding:
    """The answer to a create."""
    return CreatedBinding(**_created_fields(binding))


def replaced_form(binding: Binding, replaced_id: str) -> ReplacedBinding:
    """The answer to a replace."""
    return ReplacedBinding(**_created_fields(binding), replaces=replaced_id)


def listed_form(binding: Binding) -> ListedBinding:
    """A binding with all its fields."""
    return ListedBinding(**_listed_fields(binding))


def shown_form(binding: Binding, ineffective_reason: str | None) -> BindingDetail:
    """One binding; `ineffective_reason` is why it matches no token, None if it is effective."""
    return BindingDetail(
        **_listed_fields(binding),
        effective=ineffective_reason is None,
        ineffective_reason=ineffective_reason,
    )


class EncodedBindings:
    """The answer to a list, encoded part by part: a list may be long."""

    def __init__(self, limit: int | None) -> None:
        """At most `limit` bindings; without one, the answer has no cursor."""
        self._limit = limit
        self._entries: list[Raw] = []
        self._last_id: str | None = None
        self._has_more = False

    def add(self, bindings: Sequence[Binding]) -> None:
        """Add the next bindings of the list; those beyond the limit only count as the next page."""
        room = len(bindings) if self._limit is None else self._limit - len(self._entries)
        self._has_more |= len(bindings) > room
        for binding in bindings[:room]:
            self._entries.append(encoded(listed_form(binding)))
            self._last_id = binding.id

    def answer(self, slug: str) -> dict[str, Any]:
        """A BindingList of the bindings so far."""
        answer: dict[str, Any] = {
            "org": slug,
            "count": len(self._entries),
            "bindings": self._entries,
        }
        if self._limit is not None:
            answer["next_cursor"] = self._last_id if self._has_more else None
        return answer


def _created_fields(binding: Binding) -> dict[str, Any]:
    return {
        "id": binding.id,
        "issuer": binding.issuer,
        "sub_pattern": binding.sub_pattern,
        "repository_id": binding.repository_id,
        "event_names": binding.event_names,
        "origin": Origin(binding.origin).value,
        "added_at": format_ms(binding.added_at),
    }


def _listed_fields(binding: Binding) -> dict[str, Any]:
    return {
        **_created_fields(binding),
        "project_id": binding.project_id,
        "team_id": binding.team_id,
        "added_by": binding.added_by,
        "revoked_at": optional_ms(binding.revoked_at),
        "revoked_by": binding.revoked_by,
        "revoked_reason": binding.revoked_reason,
        "last_used_at": optional_ms(binding.last_used_at),
        "use_count": binding.use_count,
    }
