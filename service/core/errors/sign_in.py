"""Refusals of signing in: through a provider, with a passkey, or on a device."""

from service.core.errors.base import Conflict, Invalid, Refusal


class PasskeyExists(Conflict):
    """The credential is already registered."""

    text = "this passkey is registered already"


class TooManyPasskeys(Conflict):
    """The member has the maximum number of passkeys."""

    text = "passkey limit (20) reached: remove one first"


class SignInRefused(Refusal):
    """A failed sign-in, shown as a page; the log has the reason."""

    status = 400
    text = "you are not signed in"


class SignInNotUnderWay(SignInRefused):
    """The response belongs to no sign-in of this browser, or is late or repeated."""

    text = "this sign-in was not started in this browser, was already used, or took over 10 minutes"


class ProviderDenied(SignInRefused):
    """The person cancelled at the provider, or the provider denied the sign-in."""

    text = "the identity provider did not sign you in"


class IdentityNotProved(SignInRefused):
    """The provider's response does not prove an identity."""

    text = "the answer of the identity provider does not prove who you are"


class AccountNotKnown(SignInRefused):
    """The account belongs to no member, and no domain rule accepts it."""

    status = 403
    text = (
        "no organisation accepts this account: ask an owner to add you with this provider"
        " and the address that it has verified"
    )


class ProviderUnavailable(SignInRefused):
    """The provider does not respond, or not as its protocol requires."""

    status = 502
    text = "the identity provider is unavailable: try again in a few minutes"


class PasskeyNotUnderWay(SignInRefused):
    """The response belongs to no challenge of this browser, or is late or repeated."""

    text = (
        "this was not started in this browser, was already used, or took over 5 minutes: try again"
    )


class PasskeyNotMade(SignInRefused):
    """The browser's response to a registration is not valid."""

    text = "the browser did not create a passkey that this service accepts"


class PasskeyRefused(SignInRefused):
    """No accepted passkey was proved. The organisation of a known member has the reason logged."""

    status = 403
    text = "this passkey is not accepted: sign in another way"


class TooManySignIns(SignInRefused):
    """Too many attempts from one address, or in total."""

    status = 429
    text = "too many attempts to sign in: wait a minute"
    retry_after_s = 60


class DeviceRefusal(Refusal):
    """An answer to a device's request that RFC 8628 (3.5) or RFC 6749 (5.2) names by a code."""

    status = 400


class InvalidDeviceRequest(DeviceRefusal):
    """A parameter is missing, repeated or too long."""

    text = "invalid_request"


class UnknownClient(DeviceRefusal):
    """`client_id` is not that of the command line."""

    text = "invalid_client"


class UnknownGrantType(DeviceRefusal):
    """`grant_type` is not that of a device code."""

    text = "unsupported_grant_type"


class UnknownDeviceCode(DeviceRefusal):
    """The device code was never issued, or its session was handed out already."""

    text = "invalid_grant"


class AuthorizationPending(DeviceRefusal):
    """No member has decided yet: ask again after the interval."""

    text = "authorization_pending"


class SlowDown(DeviceRefusal):
    """Asked sooner than the interval, which is 5 seconds longer from now on."""

    text = "slow_down"


class DeviceCodeExpired(DeviceRefusal):
    """Not approved in time: ask for a new code."""

    text = "expired_token"


class DeviceDenied(DeviceRefusal):
    """The member denied it, or their own session has ended since they approved it."""

    text = "access_denied"


class UserCodeUnknown(Invalid):
    """No sign-in waits under this code."""

    field = "code"
    text = "no sign-in waits under this code: it may have expired, or been used already"
