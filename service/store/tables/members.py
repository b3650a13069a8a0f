"""Members, and what they sign in with."""

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base, partial_index


class Member(Base):
    """A person in an organisation. Removed members keep their row: audit rows refer to them.

    `identity_subject`, unique within `identity_namespace`, is their account at the identity
    provider. Both are null until the first sign-in with it; afterwards the email address is no
    longer matched. `user_handle` identifies them to their passkeys; null until the first one.
    """

    __tablename__ = "members"
    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    email: Mapped[str]
    role: Mapped[str]
    identity_provider: Mapped[str]
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]
    identity_namespace: Mapped[str | None]
    identity_subject: Mapped[str | None]
    user_handle: Mapped[str | None]


partial_index(
    "one_member_per_email", Member.removed_at.is_(None), Member.tenant_id, Member.email, unique=True
)


partial_index(
    "one_member_per_identity",
    Member.removed_at.is_(None),
    Member.identity_provider,
    Member.identity_namespace,
    Member.identity_subject,
    Member.tenant_id,
    unique=True,
)


class AllowedDomain(Base):
    """A domain whose users may sign in to an organisation through a provider uninvited."""

    __tablename__ = "allowed_domains"

    identity_provider: Mapped[str] = mapped_column(primary_key=True)
    domain: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"), primary_key=True)
    added_at: Mapped[datetime]


class SpentSignIn(Base):
    """A sign-in step already used; kept until it expires so that it cannot be replayed."""

    __tablename__ = "spent_sign_ins"

    id_hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class Session(Base):
    """A signed-in browser. The cookie's token is stored only as a hash.

    `source_ip` and `user_agent` are those of the sign-in, so that the member can recognise the
    session. Both are null if it was issued at the command line. `authenticated_at` is when the
    member last proved who they are; null in older sessions, whose creation counts.
    """

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    source_ip: Mapped[str | None]
    user_agent: Mapped[str | None]
    authenticated_at: Mapped[datetime | None]


class Passkey(Base):
    """A member's WebAuthn credential. `id` is the credential id in base64url.

    `sign_count` is the authenticator's last reported counter, `use_count` the number of sign-ins.
    Removed passkeys keep their row, so that attempts to use them are recognised.
    """

    __tablename__ = "passkeys"

    id: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"), index=True)
    name: Mapped[str]
    public_key: Mapped[bytes]
    transports: Mapped[list[str]]
    sign_count: Mapped[int]
    use_count: Mapped[int] = mapped_column(default=0)
    added_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    removed_at: Mapped[datetime | None]


class SignInLink(Base):
    """A single-use sign-in link of a member."""

    __tablename__ = "sign_in_links"

    token_hash: Mapped[str] = mapped_column(primary_key=True)
    member_id: Mapped[str] = mapped_column(ForeignKey("members.id"))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class DeviceSignIn(Base):
    """A command line that asks to be signed in (RFC 8628). Both codes are stored only as hashes.

    `decided_at` is when a member approved it, in `session_id`, or denied it (`session_id` is null).
    `used_at` is when the device received its session: never twice. `source_ip` and `user_agent` are
    those of the request that asked. `interval_s` is how long the device must wait between two
    polls, `polled_at` its last one.
    """

    __tablename__ = "device_sign_ins"

    device_code_hash: Mapped[str] = mapped_column(primary_key=True)
    user_code_hash: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    interval_s: Mapped[int]
    polled_at: Mapped[datetime | None]
    source_ip: Mapped[str | None]
    user_agent: Mapped[str | None]
    session_id: Mapped[str | None] = mapped_column(ForeignKey("sessions.id"))
    decided_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
