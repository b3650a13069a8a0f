"""The endpoint that issues install tokens to CI jobs."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from service.core.errors import (
    ApiKeyExpired,
    BodyTooLarge,
    CiTokenRefused,
    KeyOfAnotherOrg,
    LacksCapability,
    NoBodyExpected,
    OrgNotFound,
    TooManyInstallTokens,
    UnknownEncoding,
    UnknownParameter,
)
from service.packages.install_tokens.forms import IssuedInstallToken, issued_form
from service.packages.install_tokens.services import InstallTokenServices
from service.web.bodies import read_body
from service.web.dependencies import receives
from service.web.documentation import CiToken, Tag, documented
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("install_tokens", __name__, url_prefix="/api/v1/orgs/<slug>")

_BODY_BYTES_MAX = 1024


@blueprint.post("/install-tokens")
@documented(
    "issue_install_token",
    Tag.INSTALLS,
    answers={201: IssuedInstallToken},
    refusals=[
        NoBodyExpected,
        UnknownParameter,
        ApiKeyExpired,
        CiTokenRefused,
        KeyOfAnotherOrg,
        LacksCapability,
        OrgNotFound,
        BodyTooLarge,
        UnknownEncoding,
        TooManyInstallTokens,
    ],
    credentials=("apiKey",),
    ci_token=CiToken.REQUIRED,
)
@receives(InstallTokenServices)
async def issue(services: InstallTokenServices, slug: str) -> ResponseReturnValue:
    """Exchange a CI job's token for an install token, which package managers send as a password.

    After a 201 both the token and its audit row are durable. The CI token is required here, and a
    rejected one is a 403 whose text begins with the verifier's failure code.
    """
    key, org = await services.exchange.authorize(request, slug)
    query_parameters(request, ())
    if (await read_body(request, _BODY_BYTES_MAX)).strip() not in {b"", b"{}"}:
        raise NoBodyExpected
    token, secret = await services.exchange.issue(key, org)
    return json_answer(issued_form(slug, token, secret), 201)
