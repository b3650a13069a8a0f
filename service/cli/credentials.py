"""Credentials of a server, and the header in which each kind is sent."""

from dataclasses import dataclass, field
from typing import Final, Literal

from service.core.errors import Invalid
from service.core.header_names import ADMIN_TOKEN_HEADER, API_KEY_HEADER

CredentialKind = Literal["session", "api_key", "admin_token"]

_KEY_PREFIX: Final = "cs_"
_SESSION_PREFIX: Final = "csess_"
_CHARS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret and its kind. Its text is not part of any message."""

    kind: CredentialKind
    token: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The header that carries it."""
        if self.kind == "session":
            return {"authorization": f"Bearer {self.token}"}
        name = API_KEY_HEADER if self.kind == "api_key" else ADMIN_TOKEN_HEADER
        return {name: self.token}


def session_credential(token: object) -> Credential:
    """The session that a server has started. Raises ValueError if `token` is no session's."""
    if not isinstance(token, str) or not token.startswith(_SESSION_PREFIX) or not _is_secret(token):
        raise ValueError("access_token")
    return Credential("session", token)


def credential_of(secret: str) -> Credential:
    """`secret` as a credential, whose kind its prefix tells. Raises Invalid.

    A secret without one of the prefixes is an admin token.
    """
    token = secret.strip()
    if not _is_secret(token):
        raise Invalid("the token must be one line of printable ASCII, such as an API key (cs_…)")
    if token.startswith(_KEY_PREFIX):
        return Credential("api_key", token)
    if token.startswith(_SESSION_PREFIX):
        return Credential("session", token)
    return Credential("admin_token", token)


def _is_secret(token: str) -> bool:
    """True if `token` may be the value of a header."""
    return 0 < len(token) <= _CHARS_MAX and token.isascii() and token.isprintable()
