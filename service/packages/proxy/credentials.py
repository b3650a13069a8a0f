"""The credentials of a request to install, in each of the ways that package managers send them.

| carrier | user | password |
| --- | --- | --- |
| `x-service-api-key`, with or without `x-service-ci-oidc` | | |
| Basic | API key | CI token, or nothing |
| Basic | anything | API key |
| Basic | anything | install token or machine token |
| Basic (`https://TOKEN@host`) | install token or machine token | anything |
| Bearer (npm's `_authToken`) | | API key or one of these tokens |

All input is hostile: its length is bounded, and no bytes cause anything worse than a refusal.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Final, Protocol

from service.ci.verifier.parsing import TOKEN_CHARS_MAX
from service.core.header_names import API_KEY_HEADER, CI_TOKEN_HEADER
from service.orgs.api_keys import API_KEY_PREFIX
from service.packages.install_tokens.authorization import InstallCredentials
from service.packages.install_tokens.machine_tokens import PREFIX as MACHINE_PREFIX
from service.packages.install_tokens.tokens import PREFIX as INSTALL_PREFIX
from service.packages.refusals import CREDENTIALS_DIFFER, InstallUnauthenticated

SECRET_CHARS_MAX: Final = 256
"""Longer than every API key and token."""

AUTHORIZATION_CHARS_MAX: Final = 64 + (SECRET_CHARS_MAX + TOKEN_CHARS_MAX) * 4 // 3

_TOKENS: Final = (INSTALL_PREFIX, MACHINE_PREFIX)
_OURS: Final = (*_TOKENS, API_KEY_PREFIX)


class HeaderLists(Protocol):
    """The headers of a request."""

    def getlist(self, key: str, /) -> list[str]:
        """All values of one header."""


def read_credentials(headers: HeaderLists) -> InstallCredentials:
    """The one credential in `headers`, and the CI tokens sent with it.

    Raises InstallUnauthenticated if there is none, and CREDENTIALS_DIFFER for several different
    ones: choosing one could let a request act with a credential that its sender has replaced.
    """
    from_header = _from_header(headers.getlist(API_KEY_HEADER))
    from_authorization = _from_authorization(headers.getlist("authorization"))
    secret = _only("API keys or tokens", [from_header, from_authorization])
    ci_tokens = headers.getlist(CI_TOKEN_HEADER)
    if from_authorization is not None and from_authorization.ci_tokens:
        (beside,) = from_authorization.ci_tokens
        if ci_tokens and ci_tokens != [beside]:
            raise CREDENTIALS_DIFFER(value="CI tokens")
        ci_tokens = [beside]
    return InstallCredentials(secret, tuple(ci_tokens))


def _only(what: str, given: Iterable[InstallCredentials | None]) -> str:
    secrets = {credential.secret for credential in given if credential is not None}
    if not secrets:
        raise InstallUnauthenticated
    if len(secrets) > 1:
        raise CREDENTIALS_DIFFER(value=what)
    return secrets.pop()


def _from_header(values: list[str]) -> InstallCredentials | None:
    if not values:
        return None
    if len(set(values)) > 1:
        raise CREDENTIALS_DIFFER(value=API_KEY_HEADER)
    if not values[0].startswith(API_KEY_PREFIX):
        raise InstallUnauthenticated
    return InstallCredentials(_bounded(values[0]))


def _from_authorization(values: list[str]) -> InstallCredentials | None:
    """The credential in `Authorization`, or None unless its scheme is Bearer or Basic."""
    if not values:
        return None
    if len(set(values)) > 1:
        raise CREDENTIALS_DIFFER(value="Authorization headers")
    scheme, _, rest = values[0].partition(" ")
    # Before it is decoded: the work on a header must not grow with what a client sends.
    if len(values[0]) > AUTHORIZATION_CHARS_MAX:
        raise InstallUnauthenticated
    if scheme.lower() == "bearer":
        return InstallCredentials(_bounded(rest.strip(" ")))
    if scheme.lower() == "basic":
        return _basic(rest.strip(" "))
    return None


def _basic(encoded: str) -> InstallCredentials:
    """The credential in user and password (RFC 7617). Raises InstallUnauthenticated."""
    try:
        # One character for each byte, so that no byte is a fault: ours are ASCII, others are wrong.
        text = base64.b64decode(encoded, validate=True).decode("latin-1")
    except (binascii.Error, ValueError) as error:
        raise InstallUnauthenticated from error
    user, _, password = text.partition(":")
    # Two secrets of ours are checked first: below, either would win over the other in silence.
    if user.startswith(API_KEY_PREFIX) and password.startswith(API_KEY_PREFIX):
        if user != password:
            raise CREDENTIALS_DIFFER(value="API keys as user and password")
        return InstallCredentials(_bounded(user))
    if user.startswith(_TOKENS) and password.startswith(_OURS) and user != password:
        raise CREDENTIALS_DIFFER(value="tokens as user and password")
    if password.startswith(_OURS):
        return InstallCredentials(_bounded(password))
    if user.startswith(_TOKENS):
        return InstallCredentials(_bounded(user))
    if user.startswith(API_KEY_PREFIX):
        return InstallCredentials(_bounded(user), (password,) if password else ())
    raise InstallUnauthenticated


def _bounded(secret: str) -> str:
    """`secret`, if it has the form of one of ours. Raises InstallUnauthenticated."""
    if not secret.startswith(_OURS) or len(secret) > SECRET_CHARS_MAX:
        raise InstallUnauthenticated
    return secret
