"""The answer of the exchange."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from analytics.model.instants import format_ms
from service.store.tables import InstallToken
from service.web.parameter_types import TimestampMs

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
