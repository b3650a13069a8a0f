"""The endpoint that issues install tokens to CI jobs."""

from typing import Annotated, Final

from msgspec import Meta, Struct
from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.model.instants import format_ms
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
from service.packages.install_tokens.services import InstallTokenServices
from service.store.tables import InstallToken
from service.web.bodies import read_body
from service.web.dependencies import receives
from service.web.documentation import CiToken, Tag, documented
from service.web.parameter_types import TimestampMs
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

EXAMPLE: Final = "csi_Zk3J7w2m9Qp4Rt6Vx8Yb1Nc5Ds0Ff2Hg4Jk6Lm8Np0Q"


class IssuedInstallToken(Struct, kw_only=True, rename="camel"):
    """An install token, the binding that trusts its job, and what the CI token said of the job."""

    token: Annotated[str, Meta(description="Shown only once, and not stored.", examples=[EXAMPLE])]
    id: str
    org: str
    expires_at: TimestampMs
    binding: Annotated[str, Meta(description="The id of the binding that trusts the job.")]
    issuer: str
    subject: str
    repository_id: str | None
    event_name: str | None
    run_id: str | None
    token_id: Annotated[str | None, Meta(description="The `jti` of the CI token.")]


def issued_form(slug: str, token: InstallToken, secret: str) -> IssuedInstallToken:
    """`token` with its value, which no later answer can repeat."""
    return IssuedInstallToken(
        token=secret,
        id=token.id,
        org=slug,
        expires_at=format_ms(token.expires_at),
        binding=token.binding_id,
        issuer=token.issuer,
        subject=token.sub,
        repository_id=token.repository_id,
        event_name=token.event_name,
        run_id=token.run_id,
        token_id=token.token_id,
    )


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
