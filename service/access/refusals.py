"""Refusals of credentials, roles and rights, and of signing in."""

from collections.abc import Mapping
from typing import ClassVar, Final

from service.core.errors import Forbidden, Invalid, Refusal, Unauthenticated


class ApiKeyExpired(Unauthenticated):
    """The API key was good once; the text says until when."""

    text = "the API key expired on {value}: issue or rotate one"
    example: ClassVar[Mapping[str, object]] = {"value": "2026-01-31"}


SIGN_IN_LINK_REFUSED: Final = Unauthenticated.of(
    "this sign-in link was already used, has expired or is invalid"
)


class SignInAgain(Forbidden):
    """The session's last sign-in is too long ago for a change that gives rights."""

    text = "sign in again to do this"


class NotTeamAdmin(Forbidden):
    """The caller does not administer the team the binding belongs to."""

    field = "team_id"
    text = "caller is not an admin of this team"


class NotOrgAdmin(Forbidden):
    """Organisation-level bindings are for owners and admins."""

    field = "origin"
    text = "organisation-level bindings are changed by owners and admins only"


LACKS_CAPABILITY: Final = Forbidden.of("missing capability: {value}", value="oidc:w")
NOT_MEMBER: Final = Forbidden.of("you are not a member of this organisation")
CROSS_SITE: Final = Forbidden.of("cross-site request refused")
FOREIGN_FORM: Final = Forbidden.of(
    "this form belongs to another session: reload its page and send it again"
)
ROLE_BEYOND_OWN: Final = Forbidden.of(
    "this role has rights beyond your own: ask a member who has it"
)
NOT_FOR_KEYS: Final = Forbidden.of(
    "API keys cannot do this: use a member's session or the admin token"
)
NOT_FOR_SESSIONS: Final = Forbidden.of("audit rows are sent with an API key or the admin token")
OPERATOR_ONLY: Final = Forbidden.of(
    "only the operator of this service may do this: send the admin token"
)
KEY_CANNOT_CHANGE: Final = Forbidden.of(
    "an API key reads, and changes nothing: use a session or the admin token"
)
KEY_OF_ANOTHER_ORG: Final = Forbidden.of("API key belongs to another organisation")


class SignInRefused(Refusal):
    """A failed sign-in, shown as a page; the log has the reason."""

    status = 400
    text = "you are not signed in"


class ProviderUnavailable(SignInRefused):
    """The provider does not respond, or not as its protocol requires."""

    status = 502
    text = "the identity provider is unavailable: try again in a few minutes"


SIGN_IN_NOT_UNDER_WAY: Final = SignInRefused.of(
    "this sign-in was not started in this browser, was already used, or took over 10 minutes"
)
PROVIDER_DENIED: Final = SignInRefused.of("the identity provider did not sign you in")
IDENTITY_NOT_PROVED: Final = SignInRefused.of(
    "the answer of the identity provider does not prove who you are"
)
ACCOUNT_NOT_KNOWN: Final = SignInRefused.of(
    "no organisation accepts this account: ask an owner to add you with this provider and the"
    " address that it has verified",
    status=403,
)
TOO_MANY_SIGN_INS: Final = SignInRefused.of(
    "too many attempts to sign in: wait a minute", status=429, retry_after_s=60
)
PASSKEY_NOT_UNDER_WAY: Final = SignInRefused.of(
    "this was not started in this browser, was already used, or took over 5 minutes: try again"
)
PASSKEY_NOT_MADE: Final = SignInRefused.of(
    "the browser did not create a passkey that this service accepts"
)
PASSKEY_REFUSED: Final = SignInRefused.of(
    "this passkey is not accepted: sign in another way", status=403
)


class DeviceRefusal(Refusal):
    """An answer to a device's request that RFC 8628 (3.5) or RFC 6749 (5.2) names by a code."""

    status = 400


INVALID_DEVICE_REQUEST: Final = DeviceRefusal.of("invalid_request")
UNKNOWN_CLIENT: Final = DeviceRefusal.of("invalid_client")
UNKNOWN_GRANT_TYPE: Final = DeviceRefusal.of("unsupported_grant_type")
UNKNOWN_DEVICE_CODE: Final = DeviceRefusal.of("invalid_grant")
AUTHORIZATION_PENDING: Final = DeviceRefusal.of("authorization_pending")
SLOW_DOWN: Final = DeviceRefusal.of("slow_down")
DEVICE_CODE_EXPIRED: Final = DeviceRefusal.of("expired_token")
DEVICE_DENIED: Final = DeviceRefusal.of("access_denied")


class UserCodeUnknown(Invalid):
    """No sign-in waits under this code."""

    field = "code"
    text = "no sign-in waits under this code: it may have expired, or been used already"
