"""Requests and responses for API keys."""

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct

from analytics.model.instants import format_ms, optional_ms
from service.access.roles import Capability
from service.core.errors import Invalid
from service.core.text_rules import NAME_MAX
from service.orgs.api_keys import OVERLAP_DEFAULT, KeyRequest, expires_soon
from service.store.organisations import is_live
from service.store.tables import ApiKey
from service.web.parameter_types import Omittable, TimestampMs
from service.web.request_parsing import check_members

REQUEST_EXAMPLE: Final = {"name": "ci", "scopes": ["packages:install"], "expires": "90d"}
ROTATION_EXAMPLE: Final = {"overlap": OVERLAP_DEFAULT}
_MEMBERS: Final = frozenset({"name", "scopes", "project", "expires"})


class NewApiKey(Struct, kw_only=True, forbid_unknown_fields=True):
    """A key to issue."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    scopes: Annotated[
        list[str],
        Meta(min_length=1, description="All that the key may do; the issuer must have each."),
    ]
    project: Omittable[Annotated[str, Meta(description="Limits the key to it: id or name.")]] = (
        UNSET
    )
    expires: Omittable[
        Annotated[
            str,
            Meta(
                description="A length (`90d`, `12h`), a date, an instant, or `never` if the"
                " operator allows it; 90 days if it is missing."
            ),
        ]
    ] = UNSET


class ApiKeyRotation(Struct, kw_only=True, forbid_unknown_fields=True):
    """How to replace a key."""

    overlap: Omittable[
        Annotated[
            str,
            Meta(description="How long the old key still works: `0`, `12h`, `7d`; 24h if missing."),
        ]
    ] = UNSET


class ApiKeyEntry(Struct, kw_only=True):
    """A key, without its secret. Without scopes it is older than they are: rotate it."""

    id: str
    name: str
    project_id: str | None
    created_by: str | None
    scopes: list[str]
    created_at: TimestampMs
    last_used_at: TimestampMs | None
    expires_at: TimestampMs | None
    revoked_at: TimestampMs | None
    replaces: str | None
    is_live: bool
    expires_soon: Annotated[bool, Meta(description="Live, and expires within 14 days.")]


class ApiKeyList(Struct, kw_only=True):
    """The organisation's keys, newest first, with those that have ended."""

    org: str
    api_keys: list[ApiKeyEntry]


class IssuedApiKey(ApiKeyEntry, kw_only=True):
    """A new key. `secret` is in this answer only."""

    secret: str
    replaced_until: Annotated[
        TimestampMs | None, Meta(description="When the key that it replaces ends.")
    ] = None


class RevokedApiKey(Struct, kw_only=True):
    """The id of the key that was revoked."""

    revoked: str


def parse_key_request(body: dict[str, Any]) -> KeyRequest:
    """The key that a request's body asks for. Raises Invalid."""
    check_members(body, _MEMBERS)
    scopes = body.get("scopes", [])
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise Invalid("scopes must be a list of strings", field="scopes")
    if len(scopes) > len(Capability):
        raise Invalid(f"scopes must be at most {len(Capability)}", field="scopes")
    texts = {name: body.get(name, "") for name in ("name", "project", "expires")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise Invalid(f"{name} must be a string", field=name)
    return KeyRequest(scopes=scopes, **texts)


def parse_rotation(body: dict[str, Any]) -> str:
    """The overlap in a request's body. Raises Invalid."""
    check_members(body, {"overlap"})
    overlap = body.get("overlap", OVERLAP_DEFAULT)
    if not isinstance(overlap, str):
        raise Invalid("overlap must be a string", field="overlap")
    return overlap


def key_entry(key: ApiKey, now: datetime) -> ApiKeyEntry:
    """A key in the API's representation."""
    return ApiKeyEntry(**_facts(key, now))


def issued_key(
    key: ApiKey, secret: str, now: datetime, replaced: ApiKey | None = None
) -> IssuedApiKey:
    """A new key, with the end of the one that it replaces."""
    until = None if replaced is None else optional_ms(replaced.expires_at)
    return IssuedApiKey(**_facts(key, now), secret=secret, replaced_until=until)


def _facts(key: ApiKey, now: datetime) -> dict[str, Any]:
    live = is_live(key, now)
    return {
        "id": key.id,
        "name": key.name,
        "project_id": key.project_id,
        "created_by": key.created_by,
        "scopes": list(key.scopes),
        "created_at": format_ms(key.created_at),
        "last_used_at": optional_ms(key.last_used_at),
        "expires_at": optional_ms(key.expires_at),
        "revoked_at": optional_ms(key.revoked_at),
        "replaces": key.replaces,
        "is_live": live,
        "expires_soon": live and expires_soon(key, now),
    }
