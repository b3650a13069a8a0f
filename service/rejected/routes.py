"""The list of rejected subjects over HTTP."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from service.access.authorization import authorize
from service.composition import services
from service.errors import Forbidden, Invalid, OrgNotFound, UnknownParameter
from service.orgs.roles import Capability
from service.rejected.forms import RejectedList, RejectedQuery, rejected_form
from service.rejected.listing import PARAMETERS, list_entries, parse_wanted
from service.web.openapi import documented
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("rejected", __name__, url_prefix="/api/v1/admin/orgs/<slug>")


@blueprint.get("/oidc-bindings/rejected")
@documented(
    answers={200: RejectedList},
    querystring=RejectedQuery,
    refusals=[Invalid, UnknownParameter, Forbidden, OrgNotFound],
)
async def rejected(slug: str) -> ResponseReturnValue:
    """List the CI identities that were turned away lately, and the bindings they lack."""
    here = services()
    _, org = await authorize(slug, Capability.OIDC_READ)
    wanted = parse_wanted(query_parameters(request, PARAMETERS))
    entries = await list_entries(here.store, here.issuers, org.id, wanted, here.clock())
    return json_answer(rejected_form(slug, entries))
