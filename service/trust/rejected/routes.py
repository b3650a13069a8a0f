"""The endpoint that lists rejected subjects."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.core.errors import ORG_REFUSALS, Invalid
from service.trust.bindings.services import BindingServices
from service.trust.rejected.forms import RejectedList, RejectedQuery, rejected_form
from service.trust.rejected.listing import PARAMETERS, list_entries, parse_wanted
from service.web.dependencies import receives
from service.web.documentation import Tag, documented
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("rejected", __name__, url_prefix="/api/v1/admin/orgs/<slug>")


@blueprint.get("/oidc-bindings/rejected")
@documented(
    "list_rejected_subjects",
    Tag.BINDINGS,
    answers={200: RejectedList},
    querystring=RejectedQuery,
    refusals=[Invalid, *ORG_REFUSALS],
)
@receives(BindingServices)
async def rejected(services: BindingServices, slug: str) -> ResponseReturnValue:
    """List the recently rejected CI identities, and the bindings that would make them trusted."""
    _, org = await services.access.authorize(slug, Capability.OIDC_READ)
    wanted = parse_wanted(query_parameters(request, PARAMETERS))
    entries = await list_entries(services.store, services.issuers, org.id, wanted, services.clock())
    return json_answer(rejected_form(slug, entries))
