"""Who installs: what a request to install carries, and whom that proves."""

import hashlib
from dataclasses import dataclass, field, replace

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

    `secret_id` tells the install token or the CI token from others; empty for a key alone.
    """

    key: ApiKeyPrincipal
    install_token_id: str | None
    secret_id: str

    @property
    def credential(self) -> str:
        """The same for all requests with the same key, token and attribution, and for no others.

        Rows of one install are told from those of another by it.
        """
        binding_id = "" if self.ci is None else self.ci.binding_id
        return f"{self.key.key_id}/{self.secret_id}/{binding_id}"

    @property
    def tenant_id(self) -> str:
        """The organisation that the key belongs to."""
        return self.key.tenant_id

    @property
    def key_id(self) -> str:
        """The id of the API key, also of one that an install token was issued to."""
        return self.key.key_id

    @property
    def ci(self) -> Attribution | None:
        """The CI job that installs, or None if no token of a trusted one proves it."""
        return self.key.origin.ci

    @property
    def audit_context(self) -> AuditContext:
        """With the key as the actor, and the CI job if there is one."""
        return self.key.audit_context

    def with_key(self, key: ApiKeyPrincipal) -> "InstallPrincipal":
        """The same with `key`, whose CI job was asked again."""
        return replace(self, key=key)


def install_principal(
    key: ApiKeyPrincipal, install_token_id: str | None, ci_tokens: tuple[str, ...]
) -> InstallPrincipal:
    """The principal of `key`, which came with this install token or these CI tokens.

    A rejected CI token is none: a client that sends a new one each time causes no more rows.
    """
    secret_id = install_token_id or ""
    if ci_tokens and key.origin.ci is not None:
        secret_id = hashlib.sha256(ci_tokens[0].encode("utf-8", "surrogatepass")).hexdigest()
    return InstallPrincipal(key, install_token_id, secret_id)
