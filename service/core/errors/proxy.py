"""Refusals of the install proxy and of its install tokens."""

from service.core.errors.access import Unauthenticated
from service.core.errors.base import (
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Refusal,
)
from service.core.errors.storage import OPERATOR_S, StoreUnavailable


class InstallUnauthenticated(Unauthenticated):
    """A request to install without a credential that may, or with a wrong one.

    Package managers send credentials only to a `Basic` challenge.
    """

    text = (
        "missing or invalid credentials: send an API key or an install token (csi_…) as the"
        " password of Basic authentication, or as a bearer token"
    )
    challenge = 'Basic realm="countersign"'


class InstallTokenExpired(InstallUnauthenticated):
    """The install token was good once; the text says until when."""

    text = (
        "the install token expired on {value}: run `countersign ci exec` again, or exchange a new"
        " CI token for a new one"
    )


class InstallTokenEnded(InstallUnauthenticated):
    """The API key of the install token was revoked or has expired."""

    text = (
        "the API key of this install token was revoked or has expired: exchange a CI token for a"
        " new one, with another API key"
    )


class CredentialsDiffer(Invalid):
    """A request to install carries several credentials that are not the same."""

    text = "the request carries {value} that differ: send one of them"


class InstallTokenOfAnotherOrg(Forbidden):
    """The install token belongs to another organisation."""

    text = "the install token belongs to another organisation"


class TooManyInstallTokens(Refusal):
    """The API key has the maximum number of live install tokens, or this CI token has."""

    status = 429
    text = "too many install tokens of {value} are live: use one of them, or wait until they expire"
    retry_after_s = 60


class PackageCacheFull(StoreUnavailable):
    """The disk has no room for a package that must be fetched; no byte of it was sent."""

    text = (
        "the package cache has no room: free disk space, or lower COUNTERSIGN_PROXY_CACHE_BYTES_MAX"
    )
    retry_after_s = OPERATOR_S


class InstallNotRecorded(Refusal):
    """The audit row of an install cannot be stored, so its file is not served."""

    status = 503
    text = (
        "the install cannot be recorded, so the file is not served:"
        " the journal of this organisation is full; try again later"
    )
    retry_after_s = 5
    is_temporary = True


class InstallNotStored(StoreUnavailable):
    """The disk has no room for the audit row of an install, so its file is not served."""

    text = (
        "the install cannot be recorded, so the file is not served:"
        " storage is full; try again once its operator has freed disk space"
    )


class EcosystemNotServed(NotFound):
    """No registry of this kind is configured."""

    text = "this proxy serves no {value} packages: its operator has set no registry for them"


class FirstPartyNotServed(NotFound):
    """A first-party package, whose own registry the proxy does not serve."""

    text = (
        "this is a first-party package: install it from the registry {value}, which this proxy"
        " does not serve; it is never looked for at a public one"
    )


class NoPackageName(NotFound):
    """What is asked for cannot be the name of a package; the text says what can."""

    text = "no package has such a name: {value}"


class PublishingNotSupported(MethodNotAllowed):
    """A request that would change a package, at the install proxy."""

    text = "this proxy is for installing: publishing is not supported, use the registry itself"


class PackageFileMissing(NotFound):
    """No document of the registry lists this file."""

    text = "the package's document lists no such file"


class NoAcceptableForm(Refusal):
    """No form of the page is acceptable to the client."""

    status = 406
    text = (
        "the index has the forms application/vnd.pypi.simple.v1+json,"
        " application/vnd.pypi.simple.v1+html and text/html"
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


class TooManyRegistryRequests(ProxyBusy):
    """The organisation has sent as many requests to the registry as it may for now."""

    status = 429
    text = (
        "this organisation has sent too many requests to the package registry"
        " (COUNTERSIGN_PROXY_REQUESTS_PER_S): install with fewer jobs or connections at once, and"
        " try again in a few seconds; what is in the cache installs meanwhile"
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


class TooManyAnswers(Busy):
    """The maximum number of answers of the install proxy is under way."""

    text = (
        "too many answers of the install proxy to this {whose} are under way ({setting}): install"
        " with fewer jobs or connections at once, and try again"
    )
    retry_after_s = 5
    is_temporary = True


class NotAsDocumented(UpstreamFailed):
    """The registry sends another file than its document describes."""


class ArtifactNotOffered(NotFound):
    """No registry offers such a file instead of one that was served before."""

    text = "no registry offers {value} with this digest: see `countersign artifact list`"


class ArtifactAmbiguous(Conflict):
    """Several registries do."""

    text = "several registries offer {value} with this digest: name one with --registry"
