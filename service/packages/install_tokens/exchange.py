"""Exchanges an API key and a CI job's token for an install token: the rule and its endpoint."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from msgspec import Meta
from quart import Blueprint, Request, request
from quart.typing import ResponseReturnValue

from analytics.model.rows import VerdictSource
from service.access.authenticate import Authenticator
from service.access.authorization import Authorizer, token_request
from service.access.callers import ApiKeyPrincipal
from service.access.refusals import KEY_OF_ANOTHER_ORG, LACKS_CAPABILITY, ApiKeyExpired
from service.access.roles import Capability
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.verifier import Verifier
from service.core.errors import BodyTooLarge, Forbidden, OrgNotFound, Unauthenticated
from service.core.header_names import API_KEY_HEADER, CI_TOKEN_HEADER
from service.packages.install_tokens.tokens import issue_install_token
from service.packages.refusals import CI_TOKEN_REFUSED, TOO_MANY_INSTALL_TOKENS
from service.store.organisations import find_key_in_use, get_org_by_id
from service.store.store import Store
from service.store.tables import InstallToken, Organisation
from service.web.bodies import read_body
from service.web.dependencies import group_of
from service.web.documentation import CiTokenUse, Documentation, Tag
from service.web.models import Answer, TimestampMs
from service.web.refusals import NO_BODY_EXPECTED, UNKNOWN_ENCODING, UNKNOWN_PARAMETER
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer


@dataclass(frozen=True, slots=True)
class InstallTokenIssuer:
    """Issues install tokens to CI jobs that a binding trusts."""

    _authenticator: Authenticator
    _access: Authorizer
    _verifier: Verifier
    _store: Store
    _audience: str
    _lifetime: timedelta

    async def authorize(self, request: Request, slug: str) -> tuple[ApiKeyPrincipal, Organisation]:
        """The API key of `request`, with the job that its CI token proves; and its organisation.

        Raises Unauthenticated (401), OrgNotFound (404), Forbidden (403), in this order. The last
        check raises CI_TOKEN_REFUSED, after the rejection is recorded.
        """
        keys = request.headers.getlist(API_KEY_HEADER)
        if len(keys) != 1:
            raise Unauthenticated
        origin = self._authenticator.origin(request, VerdictSource.ADMIN_API)
        key = await self._authenticator.api_key(keys[0], origin)
        org = await self._access.org(slug)
        key.require_install_rights(org)
        tokens = request.headers.getlist(CI_TOKEN_HEADER)
        try:
            if not tokens:  # there is nothing to record as rejected
                raise TokenRejected(FailureCode.MISSING_TOKEN)
            return key.with_ci(await self._verifier.verify(tokens, token_request(key, org))), org
        except TokenRejected as rejection:
            raise refusal_of(rejection, self._audience) from rejection

    async def issue(self, key: ApiKeyPrincipal, org: Organisation) -> tuple[InstallToken, str]:
        """A new install token for the job of `key`, and its value; its audit row commits with it.

        Key and binding are read again in the transaction. Raises Unauthenticated, CI_TOKEN_REFUSED,
        TOO_MANY_INSTALL_TOKENS.
        """
        async with self._store.write() as work:
            # Either may have been revoked while the issuer's keys were fetched or the body arrived.
            present = await find_key_in_use(work.session, key.tenant_id, key.key_id, work.now)
            if present is None:
                raise Unauthenticated
            now_org = await get_org_by_id(work.session, org.id)
            key = await self._access.revalidated_ci(key, now_org)
            ci = key.origin.ci
            if ci is None:
                rejection = TokenRejected(FailureCode.UNBOUND_OIDC_SUBJECT)
                raise refusal_of(rejection, self._audience)
            return await issue_install_token(work, present, ci, self._lifetime, key.audit_context)


REMEDIES: Final[dict[FailureCode, str]] = {
    FailureCode.MISSING_TOKEN: "send the CI job's token in x-service-ci-oidc",
    FailureCode.MALFORMED_JWT: (
        "x-service-ci-oidc is not one token in three parts: send what the CI provider issued, once"
    ),
    FailureCode.UNBOUND_ISSUER: (
        "the operator does not accept this issuer: ask them to add it to the issuers file"
    ),
    FailureCode.BAD_AUDIENCE: (
        "the token is for another service: request one with the audience {audience} alone"
    ),
    FailureCode.SIGNATURE_INVALID: (
        "no key of the issuer verifies the signature: request a new token from the CI provider"
    ),
    FailureCode.EXPIRED_OR_NOT_YET_VALID: (
        "the token has expired, or is not valid yet: request one right before it is sent"
    ),
    FailureCode.MISSING_REPOSITORY_ID: (
        "the token names no repository, which its issuer requires: check the issuers file"
    ),
    FailureCode.UNBOUND_OIDC_SUBJECT: (
        "no binding trusts this job: create one, on the page Rejected or with"
        " `countersign bindings create`"
    ),
}

REMEDIES_OF_DETAILS: Final[dict[Detail, str]] = {
    Detail.MISSING_SUB: "the token has no subject: request a new one from the CI provider",
    Detail.BINDING_AMBIGUOUS: "several bindings trust this job: revoke all but one of them",
    Detail.EVENT_NAME_NOT_ALLOWED: (
        "the binding of this job does not allow the event that started it: replace the binding"
    ),
}


def refusal_of(rejection: TokenRejected, audience: str) -> Forbidden:
    """The refusal of a token: the failure code, its detail if it has one, and what to do."""
    if rejection.detail is None:
        remedy = REMEDIES[rejection.code].format(audience=audience)
        return CI_TOKEN_REFUSED(f"{rejection.code}: {remedy}")
    return CI_TOKEN_REFUSED(
        f"{rejection.code} ({rejection.detail}): {REMEDIES_OF_DETAILS[rejection.detail]}"
    )


EXAMPLE: Final = "csi_Zk3J7w2m9Qp4Rt6Vx8Yb1Nc5Ds0Ff2Hg4Jk6Lm8Np0Q"


_BODY_BYTES_MAX: Final = 1024

blueprint = Blueprint("install_tokens", __name__, url_prefix="/api/v1/orgs/<slug>")


class IssuedInstallToken(Answer, kw_only=True, rename="camel"):
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


@blueprint.post("/install-tokens")
@Documentation(
    "issue_install_token",
    Tag.INSTALLS,
    answers={201: IssuedInstallToken},
    refusals=[
        NO_BODY_EXPECTED,
        UNKNOWN_PARAMETER,
        ApiKeyExpired,
        CI_TOKEN_REFUSED,
        KEY_OF_ANOTHER_ORG,
        LACKS_CAPABILITY,
        OrgNotFound,
        BodyTooLarge,
        UNKNOWN_ENCODING,
        TOO_MANY_INSTALL_TOKENS,
    ],
    credentials=("apiKey",),
    ci_token=CiTokenUse.REQUIRED,
    capability=Capability.PACKAGES_INSTALL,
)
async def issue(slug: str) -> ResponseReturnValue:
    """Exchange a CI job's token for an install token, which package managers send as a password.

    After a 201 both the token and its audit row are durable. The CI token is required here, and a
    rejected one is a 403 whose text begins with the verifier's failure code.
    """
    issuer = group_of(InstallTokenIssuer)
    key, org = await issuer.authorize(request, slug)
    query_parameters(request, ())
    if (await read_body(request, _BODY_BYTES_MAX)).strip() not in {b"", b"{}"}:
        raise NO_BODY_EXPECTED
    token, secret = await issuer.issue(key, org)
    answer = IssuedInstallToken.from_row(
        token, token=secret, org=slug, binding=token.binding_id, subject=token.sub
    )
    return json_answer(answer, 201)
