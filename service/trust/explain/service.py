"""Explains a token or claims with the organisation's bindings and the issuer's keys.

The input is not stored, logged or counted.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from service.ci.issuers.jwks import SigningKeys
from service.ci.issuers.key_source import KeysFor
from service.ci.verifier.candidates import candidates_of
from service.ci.verifier.claims import UnverifiedToken
from service.ci.verifier.codes import TokenRejected
from service.ci.verifier.parsing import parse_token, read_header
from service.ci.verifier.rules import VerificationContext, match_binding
from service.ci.verifier.signatures import unverified_kid
from service.core.errors import (
    ClaimsNotObject,
    NeitherTokenNorClaims,
    ProjectIdNotString,
    ProjectNotFound,
    TokenNotString,
    UnknownField,
)
from service.core.threads import in_thread
from service.store.tables import Organisation
from service.trust.bindings.repository import find_places
from service.trust.bindings.rules import Places
from service.trust.bindings.services import BindingServices
from service.trust.explain.binding_history import active_terms, list_known_bindings
from service.trust.explain.explanation import Explanation, explain_no_token, explain_token

_FIELDS = frozenset({"token", "claims", "project_id"})


@dataclass(frozen=True, slots=True)
class Asked:
    """The input to explain: a token as it was sent, or claims encoded as an unsigned token.

    `project_id` is the project of the API key that the request would carry.
    """

    unverified_compact: str
    has_signature: bool
    project_id: str | None = None

    @classmethod
    def from_token(cls, token: str, project_id: str | None = None) -> Self:
        """A token as in the request header."""
        return cls(token, has_signature=True, project_id=project_id)

    @classmethod
    def from_claims(cls, claims: bytes, project_id: str | None = None) -> Self:
        """Claims as JSON; input that is malformed in a token is malformed here too."""
        segments = (
            base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (b"{}", claims)
        )
        return cls(".".join((*segments, "")), has_signature=False, project_id=project_id)


def parse_asked(body: Mapping[str, Any]) -> Asked:
    """The input in the request `body`. Raises Invalid."""
    if ("token" in body) == ("claims" in body):
        raise NeitherTokenNorClaims
    token, claims, project_id = (body.get(name) for name in ("token", "claims", "project_id"))
    if "token" in body and not isinstance(token, str):
        raise TokenNotString
    if "claims" in body and not isinstance(claims, dict):
        raise ClaimsNotObject
    if project_id is not None and not isinstance(project_id, str):
        raise ProjectIdNotString
    unknown = [name for name in body if name not in _FIELDS]
    if unknown:
        raise UnknownField(value=", ".join(unknown))
    if token is not None:
        return Asked.from_token(token, project_id)
    # Lone surrogates are passed on unchanged, so that the token parser reports them.
    text = json.dumps(claims, ensure_ascii=False, separators=(",", ":"))
    return Asked.from_claims(text.encode(errors="surrogatepass"), project_id)


async def explain_asked(services: BindingServices, asked: Asked, org: Organisation) -> Explanation:
    """Why a request of `org` with this token would or would not be trusted now.

    Raises ProjectNotFound.
    """
    async with services.store.read() as session:
        places = await find_places(session, org.id, asked.project_id)
        _require_project(asked.project_id, places)
        bindings = await list_known_bindings(session, org.id)
    now = services.clock()
    try:
        token = parse_token(read_header([asked.unverified_compact]))
    except TokenRejected as rejection:
        return explain_no_token(rejection, now)
    active = active_terms(bindings, token.unverified_claims.text("sub"))
    context = VerificationContext(
        issuers=services.issuers,
        audience=services.audience,
        candidates=candidates_of(active),
        project_id=asked.project_id,
    )
    # Outside the transaction: the issuer may take seconds to answer.
    keys = await _keys(token, context, services.keys_for) if asked.has_signature else None
    # In a thread: a token that nearly matches is compared with each of ten thousand bindings.
    return await in_thread(explain_token, token, context, bindings, keys, now)


def _require_project(project_id: str | None, places: Places) -> None:
    if project_id is not None and project_id not in places.projects:
        raise ProjectNotFound


async def _keys(
    token: UnverifiedToken, context: VerificationContext, keys_for: KeysFor
) -> SigningKeys:
    """The keys for rule 6; empty, without a request to the issuer, if an earlier rule fails."""
    try:
        issuer, _ = match_binding(token.unverified_claims, context)
    except TokenRejected:
        return SigningKeys()
    kid = unverified_kid(token, issuer.algorithms)
    return SigningKeys() if kid is None else await keys_for(issuer, kid)
