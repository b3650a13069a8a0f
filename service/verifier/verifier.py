"""The verifier: from the header of a request to its attribution, or to a rejection on record."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from service.clock import Clock
from service.issuers.issuers import Issuer, Issuers
from service.issuers.jwks import SigningKeys
from service.issuers.key_source import KeySource
from service.metrics import Metrics
from service.store.tables import Organisation
from service.verifier.attribution import Attribution
from service.verifier.claims import Claims, UnverifiedClaims, UnverifiedToken
from service.verifier.codes import FailureCode, TokenRejected
from service.verifier.parsing import parse_token, read_header
from service.verifier.rejections import Rejection, log_rejection
from service.verifier.rules import (
    Grounds,
    match_binding,
    rule_1_issuer,
    rule_2_audience,
    rule_6_signature,
    rule_7_time,
)
from service.verifier.seen import SeenTokens
from service.verifier.signatures import unverified_kid
from service.verifier.trust import Trust
from service.verifier.usage import BindingUse

CI_TOKEN_HEADER: Final = "x-service-ci-oidc"  # noqa: S105 - a header's name

# Codes a token can get whatever its signature: who says what it says is then asked apart.
_ABOUT_BINDINGS: Final = frozenset(
    {FailureCode.MISSING_REPOSITORY_ID, FailureCode.UNBOUND_OIDC_SUBJECT}
)


class Bearing(Struct, frozen=True):
    """The request that bears a token: for which organisation, and by whose leave.

    `project_id` is the project of its API key, None for every other credential.
    """

    org: Organisation
    project_id: str | None
    request_id: str


class _Reading(Struct, frozen=True):
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
        trust: Trust,
        keys: KeySource,
        use: BindingUse,
        note_rejection: Callable[[Rejection], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._issuers = issuers
        self._audience = audience
        self._trust = trust
        self._keys = keys
        self._use = use
        self._note_rejection = note_rejection
        self._metrics = metrics
        self._clock = clock
        self._seen = SeenTokens()

    async def attribute(self, values: Sequence[str], bearing: Bearing) -> Attribution | None:
        """What the token in the header `values` proves, or None, and then why is on record."""
        reading: _Reading | None = None
        try:
            reading = self._read(read_header(values))
            found = await self._verify(reading, bearing)
        except TokenRejected as rejection:
            self._turn_away(rejection, values, reading, bearing)
            return None
        self._use.note(found.binding_id, self._clock())
        self._metrics.attributed(found.issuer.provider)
        return found

    async def attribute_again(self, before: Attribution, org: Organisation) -> Attribution | None:
        """`before` as it is now that `org` has been read again, or None.

        Between the two a client may have taken its time over the body of its request.
        """
        if org.trust_revision == before.trust_revision:
            return before
        grounds = await self.grounds(org, before.project_id)
        try:
            issuer, binding = match_binding(before.claims, grounds)
        except TokenRejected:
            return None
        return Attribution(issuer, binding.id, before.claims, before.project_id, org.trust_revision)

    async def grounds(self, org: Organisation, project_id: str | None) -> Grounds:
        """What tokens for `org` are judged on now."""
        candidates = await self._trust.candidates(org)
        return Grounds(self._issuers, self._audience, candidates, project_id)

    def _read(self, compact: str) -> _Reading:
        seen = self._seen.find(compact, self._clock())
        return _Reading(compact, seen or parse_token(compact))

    async def _verify(self, reading: _Reading, bearing: Bearing) -> Attribution:
        """The seven rules; between the fifth and the sixth, keys may have to be fetched."""
        grounds = await self.grounds(bearing.org, bearing.project_id)
        issuer, binding = match_binding(reading.unverified_claims, grounds)
        claims = reading.said
        if isinstance(claims, UnverifiedToken):
            kid = unverified_kid(claims, issuer.algorithms)
            claims = self._sign(reading, claims, issuer, await self._keys.keys_for(issuer, kid))
        rule_7_time(claims, self._clock())
        return Attribution(
            issuer, binding.id, claims, bearing.project_id, bearing.org.trust_revision
        )

    def _sign(
        self, reading: _Reading, token: UnverifiedToken, issuer: Issuer, keys: SigningKeys
    ) -> Claims:
        claims = rule_6_signature(token, issuer, keys)
        self._seen.keep(reading.compact, claims, issuer, self._clock())
        return claims

    def _turn_away(
        self,
        rejection: TokenRejected,
        values: Sequence[str],
        reading: _Reading | None,
        bearing: Bearing,
    ) -> None:
        """Put on record that the token was rejected, and why; never the token."""
        said = reading.unverified_claims if reading else UnverifiedClaims({})
        self._metrics.auth_failed(rejection.code)
        log_rejection(rejection, values, said, bearing.org.id)
        self._note_rejection(
            Rejection.of(
                said,
                self._issuers.get(said.text("iss") or ""),
                rejection,
                tenant_id=bearing.org.id,
                is_verified=self._holds(rejection, reading),
                project_id=bearing.project_id,
                request_id=bearing.request_id,
                at=self._clock(),
            )
        )

    def _holds(self, rejection: TokenRejected, reading: _Reading | None) -> bool:
        """True if an accepted issuer says all this to this service now, though it is not bound.

        Asked with the keys at hand: a token that nobody trusts sends no request to its issuer.
        """
        if reading is None or rejection.code not in _ABOUT_BINDINGS:
            return False
        claims = reading.said
        try:
            issuer = rule_1_issuer(reading.unverified_claims, self._issuers)
            rule_2_audience(reading.unverified_claims, self._audience)
            if isinstance(claims, UnverifiedToken):
                claims = self._sign(reading, claims, issuer, self._keys.cached(issuer))
            rule_7_time(claims, self._clock())
        except TokenRejected:
            return False
        return True
