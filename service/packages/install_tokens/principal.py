"""Who installs: the credentials of a request, and the machine that they prove."""

import hashlib
from dataclasses import dataclass, field, replace

from analytics.model.rows import AuditContext
from service.access.callers import ApiKeyPrincipal
from service.ci.verifier.attribution import Attribution


@dataclass(frozen=True, slots=True)
class InstallCredentials:
    """The secrets of a request to install; their `repr` does not show them.

    `secret` is an API key or an install token; `ci_tokens` are the CI tokens as sent, if any.
    """

    secret: str = field(repr=False)
    ci_tokens: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class InstallPrincipal:
    """A machine that installs, with its API key or with an install token of that key.

    `secret_id` identifies the install token or the CI token; empty for a key alone.
    """

    key: ApiKeyPrincipal
    install_token_id: str | None
    secret_id: str

    @property
    def credential(self) -> str:
        """Identifies the key, token and attribution: requests that differ in one have another one.

        It tells the repeats of an install from another install.
        """
        binding_id = "" if self.ci is None else self.ci.binding_id
        return f"{self.key.key_id}/{self.secret_id}/{binding_id}"

    @property
    def tenant_id(self) -> str:
        """The organisation that the key belongs to."""
        return self.key.tenant_id

    @property
    def key_id(self) -> str:
        """The id of the API key, or of the one that the install token was issued to."""
        return self.key.key_id

    @property
    def ci(self) -> Attribution | None:
        """The CI job that installs, or None if no trusted token proves one."""
        return self.key.origin.ci

    @property
    def audit_context(self) -> AuditContext:
        """The audit context, with the key as the actor, and the CI job if there is one."""
        return self.key.audit_context

    def with_key(self, key: ApiKeyPrincipal) -> "InstallPrincipal":
        """A copy with `key`, whose CI job was revalidated."""
        return replace(self, key=key)


def install_principal(
    key: ApiKeyPrincipal, install_token_id: str | None, ci_tokens: tuple[str, ...]
) -> InstallPrincipal:
    """The principal of `key`, sent with this install token or these CI tokens.

    A rejected CI token is ignored: a client that sends a new one each time gets no extra rows.
    """
    secret_id = install_token_id or ""
    if ci_tokens and key.origin.ci is not None:
        secret_id = hashlib.sha256(ci_tokens[0].encode("utf-8", "surrogatepass")).hexdigest()
    return InstallPrincipal(key, install_token_id, secret_id)
