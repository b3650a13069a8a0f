"""Attribution: the CI job that a verified token proves, as recorded in audit rows."""

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from analytics.model.envelopes import VerifiedCi
from analytics.model.rows import CLAIM_MAX
from service.ci.issuers.issuers import Issuer
from service.ci.providers import CONDITION_CLAIMS, CONDITION_VALUE_MAX
from service.ci.verifier.claims import Claims
from service.ci.verifier.seen_claims import EVENT_NAME, OTHERS, VALUE_CHARS_MAX


class Attribution(Struct, frozen=True):
    """A CI job that sent a request, and the binding that trusts it.

    `trust_revision` is the organisation's when the binding was looked up, `project_id` the project
    of the request's API key.
    """

    issuer: Issuer
    binding_id: str
    claims: Claims
    project_id: str | None
    trust_revision: int

    @property
    def ci(self) -> VerifiedCi:
        """The claims as stored in audit rows."""
        issuer, claims = self.issuer, self.claims
        return VerifiedCi(
            sub=claims.text("sub") or "",
            repository_id=_shortened(claims.identifier(issuer.repository_id_claim)),
            event_name=_shortened(claims.text(issuer.event_name_claim)),
            run_id=_shortened(claims.identifier(issuer.run_id_claim)),
            jti=_shortened(claims.text(issuer.token_id_claim)),
        )

    @property
    def condition_claims(self) -> dict[str, str]:
        """The claims that conditions of bindings may name, if they can have such a value."""
        texts = {name: self.claims.text(name) for name in CONDITION_CLAIMS[self.issuer.provider]}
        return {
            name: text for name, text in texts.items() if text and len(text) <= CONDITION_VALUE_MAX
        }

    @property
    def seen(self) -> dict[str, str]:
        """What advice compares bindings with: OTHERS for a claim that is absent or too long."""
        names = CONDITION_CLAIMS[self.issuer.provider]
        texts = {name: self.claims.text(name) for name in names}
        if self.issuer.event_name_claim is not None:
            texts[EVENT_NAME] = self.claims.text(self.issuer.event_name_claim)
        return {
            name: text if text and len(text) <= VALUE_CHARS_MAX else OTHERS
            for name, text in texts.items()
        }


class ProvedJob(Struct, frozen=True):
    """A CI job that a token proved earlier: its issuer's URL, and the claims kept of the token."""

    issuer: str
    ci: VerifiedCi
    condition_claims: Mapping[str, str] = {}

    def claims(self, issuer: Issuer, audience: str) -> Claims:
        """The kept claims under the names that tokens of `issuer` have for them.

        A claim that was shortened when it was kept is longer than any binding can name, so it
        matches the same bindings as before.
        """
        members: Mapping[str | None, object] = {
            issuer.repository_id_claim: self.ci.repository_id,
            issuer.event_name_claim: self.ci.event_name,
            issuer.run_id_claim: self.ci.run_id,
            issuer.token_id_claim: self.ci.jti,
            "iss": self.issuer,
            "aud": audience,
            "sub": self.ci.sub,
        }
        known = {
            name: value
            for name, value in members.items()
            if name is not None and isinstance(value, str)
        }
        return Claims({**self.condition_claims, **known})


def _shortened(text: str | None) -> str | UnsetType:
    if text is None:
        return UNSET
    return text if len(text) <= CLAIM_MAX else f"{text[: CLAIM_MAX - 1]}…"
