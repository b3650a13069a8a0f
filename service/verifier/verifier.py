"""The verifier: from the header of a request to its attribution, or to a rejection on record."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, get_args

from msgspec import Struct

from service.clock import Clock
from service.issuers.issuers import Issuer, Issuers, Provider
from service.issuers.jwks import SigningKeys
from service.issuers.key_source import KeySource
from service.metrics import Metrics
from service.store.tables import Organisation
from service.verifier.attribution import Attribution
from service.verifier.candidates import Candidates
from service.verifier.claims import Claims, UnverifiedClaims, UnverifiedToken
from service.verifier.codes import FailureCode, TokenRejected
from service.verifier.parsing import parse_token, read_header
from service.verifier.rejections import Rejection, log_rejection
from service.verifier.rules import (
    VerificationContext,
    match_binding,
    rule_1_issuer,
    rule_2_audience,
    rule_6_signature,
    rule_7_time,
)
from service.verifier.signatures import unverified_kid
from service.verifier.token_cache import VerifiedTokenCache
from service.verifier.usage import BindingUse

CandidatesOf = Callable[[Organisation], Awaitable[Candidates]]
"""The active bindings of an organisation, no older than it is."""

# Codes a token can get whatever its signature: who says what it says is then asked apart.
_ABOUT_BINDINGS: Final = frozenset(
    {FailureCode.MISSING_REPOSITORY_ID, FailureCode.UNBOUND_OIDC_SUBJECT}
)


class TokenRequest(Struct, frozen=True):
    """The request that bears a token: for which organisation, and by whose leave.

    `project_id` is the project of its API key, None for every other credential.
    """

    org: Organisation
    project_id: str | None
    request_id: str


class _ParsedToken(Struct, frozen=True):
    """A token as far as it is known: as claims, if its signature has held before."""

    compact: str
    said: Claims | UnverifiedToken

    @property
    def unverified_claims(self) -> UnverifiedClaims:
        """What it says, whoever says it."""
        return self.said if isinstance(self.said, Claims) else self.said.unverified_claims


class Verifier:
    """Judges the CI tokens of requests. It neither grants nor denies: it attributes."""

    def __init__(
        self,
        issuers: Issuers,
        audience: str,
        candidates_of: CandidatesOf,
        keys: KeySource,
        use: BindingUse,
        note_rejection: Callable[[Rejection], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._issuers = issuers
        self._audience = audience
        self._candidates_of = candidates_of
        self._keys = keys
        self._use = use
        self._note_rejection = note_rejection
        self._metrics = metrics
        self._clock = clock
        self._tokens = VerifiedTokenCache()
        metrics.verifies(get_args(Provider), FailureCode)

    async def attribute(self, values: Sequence[str], request: TokenRequest) -> Attribution | None:
        """What the token in the header `values` proves, or None, and then why is on record."""
        parsed: _ParsedToken | None = None
        try:
            parsed = self._read(read_header(values))
            found = await self._verify(parsed, request)
        except TokenRejected as rejection:
            self._reject(rejection, values, parsed, request)
            return None
        self._use.note(found.binding_id, self._clock())
        self._metrics.attributed(found.issuer.provider)
        return found

    async def revalidate(self, before: Attribution, org: Organisation) -> Attribution | None:
        """`before` as it is now that `org` has been read again, or None.

        Between the two a client may have taken its time over the body of its request.
        """
        if org.trust_revision == before.trust_revision:
            return before
        context = await self.context(org, before.project_id)
        try:
            issuer, binding = match_binding(before.claims, context)
        except TokenRejected:
            return None
        return Attribution(issuer, binding.id, before.claims, before.project_id, org.trust_revision)

    async def context(self, org: Organisation, project_id: str | None) -> VerificationContext:
        """What tokens for `org` are judged on now."""
        candidates = await self._candidates_of(org)
        return VerificationContext(self._issuers, self._audience, candidates, project_id)

    def _read(self, compact: str) -> _ParsedToken:
        seen = self._tokens.find(compact, self._clock())
        return _ParsedToken(compact, seen or parse_token(compact))

    async def _verify(self, parsed: _ParsedToken, request: TokenRequest) -> Attribution:
        """The seven rules; between the fifth and the sixth, keys may have to be fetched."""
        context = await self.context(request.org, request.project_id)
        issuer, binding = match_binding(parsed.unverified_claims, context)
        claims = parsed.said
        if isinstance(claims, UnverifiedToken):
            kid = unverified_kid(claims, issuer.algorithms)
            claims = self._sign(parsed, claims, issuer, await self._keys.keys_for(issuer, kid))
        rule_7_time(claims, self._clock())
        return Attribution(
            issuer, binding.id, claims, request.project_id, request.org.trust_revision
        )

    def _sign(
        self, parsed: _ParsedToken, token: UnverifiedToken, issuer: Issuer, keys: SigningKeys
    ) -> Claims:
        claims = rule_6_signature(token, issuer, keys)
        self._tokens.keep(parsed.compact, claims, issuer, self._clock())
        return claims

    def _reject(
        self,
        rejection: TokenRejected,
        values: Sequence[str],
        parsed: _ParsedToken | None,
        request: TokenRequest,
    ) -> None:
        """Put on record that the token was rejected, and why; never the token."""
        said = parsed.unverified_claims if parsed else UnverifiedClaims({})
        self._metrics.auth_failed(rejection.code)
        log_rejection(rejection, values, said, request.org.id)
        self._note_rejection(
            Rejection.of(
                said,
                self._issuers.get(said.text("iss") or ""),
                rejection,
                tenant_id=request.org.id,
                is_verified=self._holds(rejection, parsed),
                project_id=request.project_id,
                request_id=request.request_id,
                at=self._clock(),
            )
        )

    def _holds(self, rejection: TokenRejected, parsed: _ParsedToken | None) -> bool:
        """True if an accepted issuer says all this to this service now, though it is not bound.

        Asked with the keys at hand: a token that nobody trusts sends no request to its issuer.
        """
        if parsed is None or rejection.code not in _ABOUT_BINDINGS:
            return False
        claims = parsed.said
        try:
            issuer = rule_1_issuer(parsed.unverified_claims, self._issuers)
            rule_2_audience(parsed.unverified_claims, self._audience)
            if isinstance(claims, UnverifiedToken):
                claims = self._sign(parsed, claims, issuer, self._keys.cached(issuer))
            rule_7_time(claims, self._clock())
        except TokenRejected:
            return False
        return True
