"""What a verified token does for a request: its audit rows say which CI job sent it."""

from msgspec import UNSET, Struct, UnsetType

from analytics.model.envelopes import VerifiedCi
from analytics.model.rows import CLAIM_MAX
from service.issuers.issuers import Issuer
from service.verifier.claims import Claims


class Attribution(Struct, frozen=True):
    """A CI job that sent a request, and the binding by which it is trusted.

    `trust_revision` is that of the organisation when the binding was looked up, `project_id` the
    project of the request's API key.
    """

    issuer: Issuer
    binding_id: str
    claims: Claims
    project_id: str | None
    trust_revision: int

    @property
    def ci(self) -> VerifiedCi:
        """What the token said, as a row keeps it."""
        issuer, claims = self.issuer, self.claims
        return VerifiedCi(
            sub=claims.text("sub") or "",
            repository_id=_kept(claims.identifier(issuer.repository_id_claim)),
            event_name=_kept(claims.text(issuer.event_name_claim)),
            run_id=_kept(claims.identifier(issuer.run_id_claim)),
            jti=_kept(claims.text(issuer.token_id_claim)),
        )


def _kept(text: str | None) -> str | UnsetType:
    if text is None:
        return UNSET
    return text if len(text) <= CLAIM_MAX else f"{text[: CLAIM_MAX - 1]}…"
