"""Who installs: what a request to install carries, and whom that proves."""

import hashlib
from dataclasses import dataclass, field

from analytics.model.rows import AuditContext
from service.access.callers import ApiKeyPrincipal
from service.verifier.attribution import Attribution


@dataclass(frozen=True, slots=True)
class InstallCredentials:
    """The secrets of a request to install, which no message shows.

    `secret` is an API key or an install token; `ci_tokens` are the values that a CI token was sent
    in, none if there was none.
    """

    secret: str = field(repr=False)
    ci_tokens: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class InstallPrincipal:
    """A machine that installs, with its API key or with an install token of that key.

    `credential` is the same for all requests with the same key, token and attribution, and for no
    others: rows of one install are told from those of another by it.
    """

    key: ApiKeyPrincipal
    install_token_id: str | None
    credential: str

    @property
    def tenant_id(self) -> str:
        """The organisation that the key belongs to."""
        return self.key.tenant_id

    @property
    def key_id(self) -> str:
        """The id of the API key, also of one that issued an install token."""
        return self.key.key_id

    @property
    def ci(self) -> Attribution | None:
        """The CI job that installs, or None if no token of a trusted one proves it."""
        return self.key.origin.ci

    @property
    def audit_context(self) -> AuditContext:
        """With the key as the actor, and the CI job if there is one."""
        return self.key.audit_context


def install_principal(
    key: ApiKeyPrincipal, install_token_id: str | None, ci_tokens: tuple[str, ...]
) -> InstallPrincipal:
    """The principal of `key`, which came with this install token or these CI tokens."""
    ci = key.origin.ci
    is_by_ci_token = ci is not None and bool(ci_tokens)
    parts = (
        key.key_id,
        install_token_id or "",
        ci_tokens[0] if is_by_ci_token else "",
        "" if ci is None else ci.binding_id,
    )
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return InstallPrincipal(key, install_token_id, hashlib.sha256(text).hexdigest())
