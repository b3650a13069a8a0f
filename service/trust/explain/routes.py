"""The endpoint that explains tokens."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.core.errors import (
    BODY_REFUSALS,
    ORG_REFUSALS,
    ClaimsNotObject,
    NeitherTokenNorClaims,
    NotAnObject,
    ProjectIdNotString,
    ProjectNotFound,
    TokenNotString,
    UnknownField,
)
from service.trust.bindings.services import BindingServices
from service.trust.explain.forms import (
    REQUEST_EXAMPLE,
    ExplainRequest,
    ExplanationForm,
    explanation_form,
)
from service.trust.explain.service import explain_asked, parse_asked
from service.web.dependencies import receives
from service.web.documentation import Tag, documented
from service.web.request_parsing import json_object, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("explain", __name__, url_prefix="/api/v1/admin/orgs/<slug>")


@blueprint.post("/oidc-bindings/explain")
@documented(
    "explain_token",
    Tag.BINDINGS,
    answers={200: ExplanationForm},
    request=ExplainRequest,
    request_example=REQUEST_EXAMPLE,
    refusals=[
        NotAnObject,
        TokenNotString,
        ClaimsNotObject,
        NeitherTokenNorClaims,
        ProjectIdNotString,
        UnknownField,
        ProjectNotFound,
        *ORG_REFUSALS,
        *BODY_REFUSALS,
    ],
)
@receives(BindingServices)
async def explain(services: BindingServices, slug: str) -> ResponseReturnValue:
    """Explain why a CI token is or is not trusted, and propose a binding; nothing is stored."""
    _, org = await services.access.authorize(slug, Capability.OIDC_READ)
    query_parameters(request, ())
    asked = parse_asked(await json_object(request))
    explanation = await explain_asked(services, asked, org)
    return json_answer(explanation_form(explanation))
