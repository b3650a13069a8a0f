"""Attribution: the CI job that a verified token proves, as recorded in audit rows."""

from msgspec import UNSET, Struct, UnsetType

from analytics.model.envelopes import VerifiedCi
from analytics.model.rows import CLAIM_MAX
from service.issuers.issuers import Issuer
from service.verifier.claims import Claims


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


def _shortened(text: str | None) -> str | UnsetType:
    if text is None:
        return UNSET
    return text if len(text) <= CLAIM_MAX else f"{text[: CLAIM_MAX - 1]}…"
