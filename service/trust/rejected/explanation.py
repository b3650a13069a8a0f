"""Explains a rejected subject by its stored claims, with the current bindings."""

import json

from service.store.tables import Organisation, RejectedSubject
from service.trust.bindings.services import BindingServices
from service.trust.explain.explanation import Explanation
from service.trust.explain.service import Asked, explain_asked
from service.trust.rejected.proposals import claims_of, is_askable


async def explain_rejected(
    services: BindingServices, org: Organisation, row: RejectedSubject
) -> Explanation | None:
    """The explanation of the row's claims as if sent now; None if a binding would not help it.

    Only of verified rows: the claims of others may be forged.
    """
    if not is_askable(row, services.issuers):
        return None
    claims = claims_of(row, services.issuers, services.audience)
    asked = Asked.from_claims(json.dumps(claims).encode(), row.project_id)
    return await explain_asked(services, asked, org)
