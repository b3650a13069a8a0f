"""The endpoints for API keys. A key cannot use them: no scope includes org:admin."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final, Self

from msgspec import UNSET, Meta
from quart import Response

from analytics.model.instants import optional_ms
from service.access.roles import KEY_SCOPES, Capability
from service.core.errors import Conflict, Invalid, NotFound
from service.core.text_rules import NAME_MAX
from service.orgs.api_keys import (
    OVERLAP_DEFAULT,
    KeyRequest,
    KeyTerms,
    expires_soon,
    parse_overlap,
    request_api_key,
    revoke_api_key,
    rotate_api_key,
)
from service.store.organisations import get_api_key, is_live, list_api_keys
from service.store.tables import ApiKey
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Omittable, Parsed, Request, SecretAnswer, TimestampMs
from service.web.request_parsing import check_members
from service.web.responses import encoded, json_answer

_ADMIN: Final = Capability.ORG_ADMIN
_MEMBERS: Final = frozenset({"name", "scopes", "project", "expires"})

resource = Resource("api_keys", "/api-keys", Tag.KEYS, BaseServices)


class NewApiKey(Request):
    """A key to issue."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    scopes: Annotated[
        list[
            Annotated[str, Meta(extra_json_schema={"enum": [str(scope) for scope in KEY_SCOPES]})]
        ],
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


class ApiKeyRotation(Request):
    """How to replace a key."""

    overlap: Omittable[
        Annotated[
            str,
            Meta(description="How long the old key still works: `0`, `12h`, `7d`; 24h if missing."),
        ]
    ] = UNSET


class ApiKeyEntry(Answer):
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

    @classmethod
    def at(cls, now: datetime, key: ApiKey, **others: object) -> Self:
        """The key as it is `now`, with the `others` of a subclass."""
        live = is_live(key, now)
        soon = live and expires_soon(key, now)
        return cls.from_row(key, is_live=live, expires_soon=soon, **others)


class ApiKeyList(Answer):
    """The organisation's keys, newest first, with those that have ended."""

    org: str
    api_keys: list[ApiKeyEntry]


class IssuedApiKey(SecretAnswer, ApiKeyEntry):
    """A new key. `secret` is in this answer only."""

    secret: str
    replaced_until: Annotated[
        TimestampMs | None, Meta(description="When the key that it replaces ends.")
    ] = None


class RevokedApiKey(Answer):
    """The id of the key that was revoked."""

    revoked: str


def parse_key_request(body: Mapping[str, object]) -> KeyRequest:
    """The key that a request's body asks for. Raises Invalid."""
    check_members(body, _MEMBERS)
    scopes = body.get("scopes", [])
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise Invalid("scopes must be an array of strings", field="scopes")
    if len(scopes) > len(Capability):
        raise Invalid(f"scopes must be at most {len(Capability)}", field="scopes")
    texts = {name: _text(body, name) for name in ("name", "project", "expires")}
    return KeyRequest(scopes=scopes, **texts)


def parse_rotation(body: Mapping[str, object]) -> timedelta:
    """The overlap that a request's body asks for. Raises Invalid."""
    check_members(body, {"overlap"})
    return parse_overlap(_text(body, "overlap", OVERLAP_DEFAULT))


def _text(body: Mapping[str, object], name: str, default: str = "") -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise Invalid(f"{name} must be a string", field=name)
    return value


@resource.get("list_api_keys", needs=_ADMIN, returns=ApiKeyList)
async def list_(call: Call[BaseServices]) -> Response:
    """List the organisation's API keys, newest first."""
    now = call.services.clock()
    async with call.read() as session:
        keys = await list_api_keys(session, call.org, lambda key: encoded(ApiKeyEntry.at(now, key)))
    return json_answer({"org": call.org.slug, "api_keys": keys})


@resource.post(
    "issue_api_key",
    needs=_ADMIN,
    body=Parsed(NewApiKey, parse_key_request),
    example={"name": "ci", "scopes": ["packages:install"], "expires": "90d"},
    returns=IssuedApiKey,
    status=201,
    is_sensitive=True,
    refuses=[NotFound],
)
async def issue(call: WriteCall[BaseServices], asked: KeyRequest) -> IssuedApiKey:
    """Issue an API key; its secret is in this answer only."""
    terms = KeyTerms(call.services.settings.api_key_days_max)
    key, secret = await request_api_key(
        call.work, call.org, asked, terms, call.by, call.caller.require
    )
    return issued_key(key, secret, call.work.now)


@resource.post(
    "rotate_api_key",
    "/<key_id>/rotate",
    needs=_ADMIN,
    body=Parsed(ApiKeyRotation, parse_rotation),
    example={"overlap": OVERLAP_DEFAULT},
    returns=IssuedApiKey,
    status=201,
    is_sensitive=True,
    refuses=[NotFound, Conflict],
)
async def rotate(call: WriteCall[BaseServices], overlap: timedelta, key_id: str) -> IssuedApiKey:
    """Issue a key in place of a live one, which still works for the overlap."""
    key = await get_api_key(call.session, call.org, key_id)
    terms = KeyTerms(call.services.settings.api_key_days_max)
    new, secret = await rotate_api_key(
        call.work, call.org, key, overlap, terms, call.by, call.caller.require
    )
    return issued_key(new, secret, call.work.now, replaced=key)


@resource.delete(
    "revoke_api_key", "/<key_id>", needs=_ADMIN, returns=RevokedApiKey, refuses=[NotFound]
)
async def revoke(call: WriteCall[BaseServices], key_id: str) -> RevokedApiKey:
    """Revoke an API key, with immediate effect."""
    key = await get_api_key(call.session, call.org, key_id)
    await revoke_api_key(call.work, call.org, key, call.by)
    return RevokedApiKey(revoked=key_id)


def issued_key(
    key: ApiKey, secret: str, now: datetime, replaced: ApiKey | None = None
) -> IssuedApiKey:
    """A new key, with the end of the one that it replaces."""
    until = None if replaced is None else optional_ms(replaced.expires_at)
    return IssuedApiKey.at(now, key, secret=secret, replaced_until=until)
