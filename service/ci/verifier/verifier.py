"""The verifier: turns the token in a request header into an attribution or a recorded rejection."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct

from service.ci.issuers.issuers import Issuer, Issuers
from service.ci.issuers.jwks import SigningKeys
from service.ci.issuers.key_source import KeySource
from service.ci.providers import CI_LABELS
from service.ci.verifier.attribution import Attribution, ProvedJob
from service.ci.verifier.candidates import Candidates
from service.ci.verifier.claims import Claims, UnverifiedClaims, UnverifiedToken
from service.ci.verifier.codes import FailureCode, TokenRejected
from service.ci.verifier.parsing import parse_token, read_header
from service.ci.verifier.rejections import TokenRejection, log_rejection
from service.ci.verifier.rules import (
    VerificationContext,
    match_binding,
    rule_1_issuer,
    rule_2_audience,
    rule_6_signature,
    rule_7_time,
)
from service.ci.verifier.signatures import unverified_kid
from service.ci.verifier.token_cache import VerifiedTokenCache
from service.ci.verifier.usage import BindingUse
from service.core.clock import Clock
from service.core.metrics import Metrics
from service.store.tables import Organisation

CandidatesOf = Callable[[Organisation], Awaitable[Candidates]]
"""Returns an organisation's active bindings, at least as recent as the given row."""

# Codes that do not depend on the signature; `_holds` verifies it separately for the record.
_ABOUT_BINDINGS: Final = frozenset(
    {FailureCode.MISSING_REPOSITORY_ID, FailureCode.UNBOUND_OIDC_SUBJECT}
)


class TokenRequest(Struct, frozen=True):
    """The organisation and the credential of a request with a token.

    `project_id` is the project of its API key, None for other credentials.
    """

    org: Organisation
    project_id: str | None
    request_id: str


class _ParsedToken(Struct, frozen=True):
    """A parsed token; `content` is Claims if its signature was verified before."""

    compact: str
    content: Claims | UnverifiedToken

    @property
    def unverified_claims(self) -> UnverifiedClaims:
        """The claims, whether or not the signature was verified."""
        content = self.content
        return content if isinstance(content, Claims) else content.unverified_claims


class Verifier:
    """Verifies CI tokens of requests. A result only attributes: it grants and denies nothing.

    The exchange for an install token, whose only content is an attribution, requires one.
    """

    def __init__(
        self,
        issuers: Issuers,
        audience: str,
        candidates_of: CandidatesOf,
        keys: KeySource,
        use: BindingUse,
        record_rejection: Callable[[TokenRejection], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._issuers = issuers
        self._audience = audience
        self._candidates_of = candidates_of
        self._keys = keys
        self._use = use
        self._record_rejection = record_rejection
        self._attributed = metrics.counter(
            "countersign_ci_requests_attributed",
            "Requests that a verified CI token attributed.",
            "provider",
        )
        self._failures = metrics.counter(
            "countersign_auth_failures", "CI tokens that were rejected.", "code"
        )
        self._clock = clock
        self._tokens = VerifiedTokenCache()
        # Shown from now on: the first count must be seen as an increase.
        for provider in CI_LABELS:
            self._attributed.labels(provider)
        for code in FailureCode:
            self._failures.labels(code)

    async def attribute(self, values: Sequence[str], request: TokenRequest) -> Attribution | None:
        """The CI job that the token in header `values` proves, or None; logs rejections."""
        try:
            return await self.verify(values, request)
        except TokenRejected:
            return None

    async def verify(self, values: Sequence[str], request: TokenRequest) -> Attribution:
        """The CI job that the token in header `values` proves.

        Raises TokenRejected, once the rejection is logged, counted and recorded.
        """
        parsed: _ParsedToken | None = None
        try:
            parsed = self._read(read_header(values))
            attribution = await self._verify(parsed, request)
        except TokenRejected as rejection:
            self._reject(rejection, values, parsed, request)
            raise
        self._record_use(attribution)
        return attribution

    async def recall(self, job: ProvedJob, request: TokenRequest) -> Attribution | None:
        """The attribution to a job that was proved before, or None if no binding trusts it now.

        Rules 1 to 5 are applied again. Signature and times were those of the token, which is gone.
        """
        issuer = self._issuers.get(job.issuer)
        if issuer is None:
            return None
        claims = job.claims(issuer, self._audience)
        context = await self.context(request.org, request.project_id)
        try:
            _, binding = match_binding(claims, context)
        except TokenRejected:
            return None
        revision = request.org.trust_revision
        attribution = Attribution(issuer, binding.id, claims, request.project_id, revision)
        self._record_use(attribution)
        return attribution

    async def revalidate(self, before: Attribution, org: Organisation) -> Attribution | None:
        """`before` matched again against the re-read `org`, or None if it is no longer trusted.

        Needed because the client may have taken long to send the body of its request.
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
        """The current verification context of `org`."""
        candidates = await self._candidates_of(org)
        return VerificationContext(self._issuers, self._audience, candidates, project_id)

    def _record_use(self, attribution: Attribution) -> None:
        self._use.record(attribution.binding_id, self._clock(), attribution.seen)
        self._attributed.labels(attribution.issuer.provider).inc()

    def _read(self, compact: str) -> _ParsedToken:
        seen = self._tokens.find(compact, self._clock())
        return _ParsedToken(compact, seen or parse_token(compact))

    async def _verify(self, parsed: _ParsedToken, request: TokenRequest) -> Attribution:
        """Apply the seven rules; keys may be fetched between rules 5 and 6."""
        context = await self.context(request.org, request.project_id)
        issuer, binding = match_binding(parsed.unverified_claims, context)
        claims = parsed.content
        if isinstance(claims, UnverifiedToken):
            kid = unverified_kid(claims, issuer.algorithms)
            claims = self._sign(parsed, claims, issuer, await self._keys.keys_for(issuer, kid))
        # By the time now: the token may have expired while its issuer's keys were fetched.
        rule_7_time(claims, self._clock())
        # The revision of the row and not of the candidates, which may be newer: then the revision
        # that is read after the request's body differs, and `revalidate` matches again.
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
        """Log, count and record the rejection; the token itself is not stored."""
        claims = parsed.unverified_claims if parsed else UnverifiedClaims({})
        self._failures.labels(rejection.code).inc()
        log_rejection(rejection, values, claims, request.org.id)
        self._record_rejection(
            TokenRejection.of(
                claims,
                self._issuers.get(claims.text("iss") or ""),
                rejection,
                tenant_id=request.org.id,
                is_verified=self._holds(rejection, parsed),
                project_id=request.project_id,
                request_id=request.request_id,
                at=self._clock(),
            )
        )

    def _holds(self, rejection: TokenRejected, parsed: _ParsedToken | None) -> bool:
        """True if, apart from the missing binding, the token is valid for this service now.

        Uses cached keys only: an untrusted token must not cause a request to its issuer.
        """
        if parsed is None or rejection.code not in _ABOUT_BINDINGS:
            return False
        claims = parsed.content
        try:
            issuer = rule_1_issuer(parsed.unverified_claims, self._issuers)
            rule_2_audience(parsed.unverified_claims, self._audience)
            if isinstance(claims, UnverifiedToken):
                claims = self._sign(parsed, claims, issuer, self._keys.cached(issuer))
            rule_7_time(claims, self._clock())
        except TokenRejected:
            return False
        return True
