"""Refusals of credentials, roles and rights."""

from typing import ClassVar

from service.core.errors.base import Conflict, Forbidden, Refusal


class Unauthenticated(Refusal):
    """No credentials, or wrong ones.

    `challenge` is what the answer tells clients to send (RFC 9110, 11.6.1). Bearer tokens are
    sessions of command lines. No registered scheme uses our other header fields, and `Basic` would
    make browsers ask for a password.
    """

    status = 401
    text = "missing or invalid credentials"
    challenge: ClassVar[str] = 'Bearer realm="countersign", ApiKey realm="countersign"'


class ApiKeyExpired(Unauthenticated):
    """The API key was good once; the text says until when."""

    text = "the API key expired on {value}: issue or rotate one"


class SignInLinkRefused(Unauthenticated):
    """A sign-in link that no longer works, or never did."""

    text = "this sign-in link was already used, has expired or is invalid"


class LacksCapability(Forbidden):
    """The caller's role does not grant what the endpoint needs."""

    def __init__(self, capability: str) -> None:
        super().__init__(f"missing capability: {capability}")


class SignInAgain(Forbidden):
    """The session's last sign-in is too long ago for a change that gives rights."""

    text = "sign in again to do this"


class NotMember(Forbidden):
    """The caller belongs to another organisation."""

    text = "you are not a member of this organisation"


class CrossSite(Forbidden):
    """A browser sent this on behalf of another site."""

    text = "cross-site request refused"


class ForeignForm(Forbidden):
    """The form was not shown to this session."""

    text = "this form belongs to another session: reload its page and send it again"


class RoleBeyondOwn(Forbidden):
    """The caller would grant, or act on, a role with rights that they lack."""

    text = "this role has rights beyond your own: ask a member who has it"


class NotForKeys(Forbidden):
    """An API key was used where only members and operators may act."""

    text = "API keys cannot do this: use a member's session or the admin token"


class OperatorOnly(Forbidden):
    """What belongs to the operator was asked for with another credential than the admin token."""

    text = "only the operator of this service may do this: send the admin token"


class KeyCannotChange(Forbidden):
    """An API key with scopes only reads."""

    text = "an API key reads, and changes nothing: use a session or the admin token"


class KeyOfAnotherOrg(Forbidden):
    """The API key belongs to another organisation."""

    text = "API key belongs to another organisation"


class FormSpent(Conflict):
    """A form that works once was sent before, or belongs to another session."""

    text = "this form was already submitted or has expired: reload its page"


class OverrideMoved(Conflict):
    """The role's capabilities changed after the page was shown."""

    text = "the role was changed concurrently; its current value is shown"
