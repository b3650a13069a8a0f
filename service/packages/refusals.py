"""Refusals of the policy, of the install proxy and of its install tokens."""

from collections.abc import Mapping
from typing import ClassVar, Final

from service.core.errors import (
    OPERATOR_S,
    Busy,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Refusal,
    ServerBusy,
    StoreUnavailable,
    Unauthenticated,
)

REVISION_MISSING: Final = Invalid.of(
    "If-Match is required: the ETag of the policy that this one replaces, or * for any",
    field="if-match",
)
REVISION_NOT_FOUND: Final = NotFound.of("Revision not found for this org")


class PolicyMoved(Refusal):
    """The policy changed after the caller read it."""

    status = 412
    text = "the policy is at revision {value} by now: read it again, and apply your change to that"
    example: ClassVar[Mapping[str, object]] = {"value": 4}


class InstallUnauthenticated(Unauthenticated):
    """A request to install without a credential that may, or with a wrong one.

    Package managers send credentials only to a `Basic` challenge.
    """

    text = (
        "missing or invalid credentials: send an API key, an install token (csi_…) or a machine"
        " token (csm_…) as the password of Basic authentication, or as a bearer token"
    )
    challenge = 'Basic realm="countersign"'


INSTALL_TOKEN_EXPIRED: Final = InstallUnauthenticated.of(
    "the install token expired on {value}: run `countersign ci exec` again, or exchange a new"
    " CI token for a new one"
)
INSTALL_TOKEN_ENDED: Final = InstallUnauthenticated.of(
    "the API key of this install token was revoked or has expired: exchange a CI token for a"
    " new one, with another API key"
)
MACHINE_TOKEN_ENDED: Final = InstallUnauthenticated.of(
    "the machine token has expired or was revoked: `countersign run` gets a new one"
)
CREDENTIALS_DIFFER: Final = Invalid.of("the request carries {value} that differ: send one of them")
CI_TOKEN_REFUSED: Final = Forbidden.of(
    "missing_token: send the CI job's token in x-service-ci-oidc"
)
INSTALL_TOKEN_OF_ANOTHER_ORG: Final = Forbidden.of(
    "the install token belongs to another organisation"
)
MACHINE_TOKEN_OF_ANOTHER_ORG: Final = Forbidden.of(
    "the machine token belongs to another organisation"
)
TOO_MANY_INSTALL_TOKENS: Final = Busy.of(
    "too many install tokens of {value} are live: use one of them, or wait until they expire",
    retry_after_s=60,
    value="this API key",
)
PACKAGE_CACHE_FULL: Final = StoreUnavailable.of(
    "the package cache has no room: free disk space, or lower COUNTERSIGN_PROXY_CACHE_BYTES_MAX",
    retry_after_s=OPERATOR_S,
)
INSTALL_NOT_RECORDED: Final = ServerBusy.of(
    "the install cannot be recorded, so the file is not served:"
    " the journal of this organisation is full; try again later"
)
DECIDED_BEFORE: Final = ServerBusy.of(
    "the policy or the blocklist changed while the install was decided: try again"
)
INSTALL_NOT_STORED: Final = StoreUnavailable.of(
    "the install cannot be recorded, so the file is not served:"
    " storage is full; try again once its operator has freed disk space"
)


class NoStatement(NotFound):
    """The row is not of a package that the proxy admitted."""


NOT_ADMITTED: Final = NoStatement.of(
    "the row has no statement: it is not of an install that this service's proxy let through"
)
NOT_AS_POLICY_SAYS: Final = NoStatement.of(
    "the row has no statement: the policy was against the install, and let it through in audit mode"
)
CUT_OFF: Final = NoStatement.of(
    "the row has no statement: the file did not arrive whole, as {value} says;"
    " an install that was repeated has a row of its own",
    value="aud_0000000000000000042",
)
ECOSYSTEM_NOT_SERVED: Final = NotFound.of(
    "this proxy serves no {value} packages: its operator has set no registry for them"
)
FIRST_PARTY_NOT_SERVED: Final = NotFound.of(
    "this is a first-party package: install it from the registry {value}, which this proxy"
    " does not serve; it is never looked for at a public one"
)
NO_PACKAGE_NAME: Final = NotFound.of("no package has such a name: {value}")
PUBLISHING_NOT_SUPPORTED: Final = MethodNotAllowed.of(
    "this proxy is for installing: publishing is not supported, use the registry itself"
)
PACKAGE_FILE_MISSING: Final = NotFound.of("the package's document lists no such file")
NO_ACCEPTABLE_FORM: Final = Refusal.of(
    "the index has the forms application/vnd.pypi.simple.v1+json,"
    " application/vnd.pypi.simple.v1+html and text/html",
    status=406,
)
TOO_MANY_ANSWERS: Final = Busy.of(
    "too many answers of the install proxy to this {whose} are under way ({setting}): install"
    " with fewer jobs or connections at once, and try again",
    retry_after_s=5,
)


class UpstreamMissing(Refusal):
    """The registry says that it has no such package or file."""

    status = 404
    text = "the package registry has no such package or file"


class UpstreamFailed(Refusal):
    """The registry does not answer, or not as it should; `reason` is for the log."""

    status = 502
    text = "the package registry does not answer as it should: try again later"
    is_temporary = True

    def __init__(self, reason: str, *, is_outage: bool = False) -> None:
        """`reason` holds no credentials and nothing of the registry's own text.

        `is_outage` tells that the registry did not answer at all, or not to the end.
        """
        super().__init__()
        self.reason = reason
        self.is_outage = is_outage


class RegistryUnavailable(UpstreamFailed):
    """The registry is not asked for a while, because it did not answer earlier requests."""

    status = 503
    text = (
        "the package registry has not been answering, and the proxy has no copy of this: try again"
        " in a few seconds"
    )
    retry_after_s = 5


class ProxyBusy(UpstreamFailed):
    """Too many requests wait for the registries, of this organisation or of all."""

    status = 503
    text = "too many requests wait for the package registry: try again in a few seconds"
    retry_after_s = 5


TOO_MANY_REGISTRY_REQUESTS: Final = ProxyBusy.of(
    "this organisation has sent too many requests to the package registry"
    " (COUNTERSIGN_PROXY_REQUESTS_PER_S): install with fewer jobs or connections at once, and"
    " try again in a few seconds; what is in the cache installs meanwhile",
    status=429,
)


class RegistryLimited(RegistryUnavailable):
    """The registry answered 429, or this organisation is paused because it did."""

    status = 429
    text = (
        "the package registry takes no more requests for now (it answered 429), and the proxy has"
        " no copy of this: install with fewer jobs or connections at once, and try again later"
    )
    retry_after_s: int = 5

    def __init__(self, reason: str, retry_after_s: int) -> None:
        """`retry_after_s` is passed on to the client."""
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class NotAsDocumented(UpstreamFailed):
    """The registry sends another file than its document describes."""
