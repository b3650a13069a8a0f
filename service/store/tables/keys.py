"""Credentials of machines, and what is recorded of installs with them."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base


class ApiKey(Base):
    """A machine's credential, stored only as a hash.

    `scopes` are all that the key may do. Older keys have none: they send audit rows and install.
    `created_by` is the actor who issued it; null in keys older than the column. `last_used_at` is
    written behind and up to a minute late. From `expires_at` on the key is refused; null is never.
    `replaces` is the key that it was issued for by rotation.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    created_by: Mapped[str | None]
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    replaces: Mapped[str | None]


class InstallToken(Base):
    """A credential to install with, for which a CI job exchanged its token; stored as a hash.

    It works until `expires_at`, while its API key does. `binding_id` trusted the job when it was
    issued; the claims that follow are the token's, by which bindings are matched again. They are
    shortened as in audit rows, and `token_id` is the `jti`. `condition_claims` are those that
    conditions of bindings may name; None of tokens from before there were conditions.
    """

    __tablename__ = "install_tokens"
    # Covering index: the tokens of a key are counted from it alone.
    __table_args__ = (Index("install_tokens_of_key", "api_key_id", "expires_at", "token_id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    api_key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    token_hash: Mapped[str] = mapped_column(unique=True)
    binding_id: Mapped[str] = mapped_column(ForeignKey("bindings.id"))
    issuer: Mapped[str]
    sub: Mapped[str]
    repository_id: Mapped[str | None]
    event_name: Mapped[str | None]
    run_id: Mapped[str | None]
    token_id: Mapped[str | None]
    condition_claims: Mapped[dict[str, str] | None]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class MachineToken(Base):
    """A member's credential to install with from one machine; stored as a hash.

    It works until `expires_at` or `revoked_at`, while its member is one.
    """

    __tablename__ = "machine_tokens"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    name: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    revoked_at: Mapped[datetime | None]


class InstallMark(Base):
    """The last audit row of an install, so that its repeats add none.

    `install` is a hash of the organisation, the credential, the file and the event.
    """

    __tablename__ = "install_marks"

    install: Mapped[str] = mapped_column(primary_key=True)
    recorded_at: Mapped[datetime] = mapped_column(index=True)
    seq: Mapped[int]


class Artifact(Base):
    """The file that the install proxy first served under a name, for all organisations.

    `registry_url` has no credentials, `digest` is the `algorithm:hex` by which the file was
    verified; `sha256` is null until it is known. `published_at` is what the registry said.
    `served_at` is when an install of it was last recorded, up to a day early, or a document listed
    it again. `offered_digest` is that of another file which the registry offered under the name at
    `offered_at`; null after the operator accepted it, at `accepted_at`. Since `missed_at` documents
    of the registry lack the file, which counts as withdrawn since `withdrawn_at`.
    """

    __tablename__ = "artifacts"

    ecosystem: Mapped[str] = mapped_column(primary_key=True)
    registry_url: Mapped[str] = mapped_column(primary_key=True)
    package: Mapped[str] = mapped_column(primary_key=True)
    file_name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str]
    digest: Mapped[str]
    sha256: Mapped[str | None]
    published_at: Mapped[datetime | None]
    served_at: Mapped[datetime] = mapped_column(index=True)
    offered_digest: Mapped[str | None]
    offered_at: Mapped[datetime | None] = mapped_column(index=True)
    accepted_at: Mapped[datetime | None] = mapped_column(index=True)
    missed_at: Mapped[datetime | None] = mapped_column(index=True)
    withdrawn_at: Mapped[datetime | None] = mapped_column(index=True)
