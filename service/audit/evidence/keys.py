"""The key pairs that sign checkpoints, receipts and statements.

A private key is derived from COUNTERSIGN_SECRET_KEY and the key's id, so it is stored nowhere: a
copy of the database signs nothing. With another secret key the old ones are gone; what they signed
stays valid.
"""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.notes import VerifierKey, sign
from service.core.errors import Conflict
from service.core.ids import new_id
from service.core.secrets import derive_key
from service.store.tables import EvidenceKey
from service.store.transaction import Transaction, within

KEY_LOST: Final = Conflict.of(
    "COUNTERSIGN_SECRET_KEY is not the one that key {value} was derived from: set the former one,"
    " or begin a new key with `countersign evidence key rotate`",
    value="evk_5d7f9h1k3m5p7r9t",
)

_NEWEST_FIRST: Final = EvidenceKey.retired_at.is_not(None), EvidenceKey.created_at.desc()
_PUBLIC_KEYS: Final = select(EvidenceKey.public).order_by(*_NEWEST_FIRST)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key pair that can sign."""

    id: str
    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        """The public half, 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    def line(self, name: str, text: str) -> str:
        """The line of a note that signs its `text` under this name."""
        return sign(self.private, name, text)


def derive(secret_key: str, key_id: str) -> SigningKey:
    """The key pair of this id."""
    seed = derive_key(secret_key, f"evidence {key_id}")
    return SigningKey(key_id, Ed25519PrivateKey.from_private_bytes(seed))


async def list_keys(session: AsyncSession) -> list[EvidenceKey]:
    """All keys, the newest first."""
    return [*await session.scalars(select(EvidenceKey).order_by(*_NEWEST_FIRST))]


async def find_signing_key(session: AsyncSession, secret_key: str) -> SigningKey | None:
    """The key that signs; None before the first one. Raises KEY_LOST."""
    for stored in await list_keys(session):
        if stored.retired_at is None:
            key = await find_key(session, secret_key, stored.id)
            if key is None:
                raise KEY_LOST(value=stored.id)
            return key
    return None


async def find_key(session: AsyncSession, secret_key: str, key_id: str) -> SigningKey | None:
    """The key of this id; None if it can sign no longer."""
    stored = await session.get(EvidenceKey, key_id)
    key = None if stored is None else derive(secret_key, key_id)
    return key if key and stored and encoded(key.public) == stored.public else None


async def signing_key(session: AsyncSession, secret_key: str, now: datetime) -> SigningKey:
    """The key that signs, in a write transaction: the first one is begun. Raises KEY_LOST."""
    return await find_signing_key(session, secret_key) or await begin_key(session, secret_key, now)


async def begin_key(session: AsyncSession, secret_key: str, now: datetime) -> SigningKey:
    """A new key, which signs from now on; those before it are retired."""
    retire = update(EvidenceKey).where(EvidenceKey.retired_at.is_(None)).values(retired_at=now)
    await session.execute(retire)
    key = derive(secret_key, new_id("evk"))
    session.add(EvidenceKey(id=key.id, public=encoded(key.public), created_at=now))
    await session.flush()
    return key


def read_verifier_keys(transaction: Transaction, name: str) -> list[VerifierKey]:
    """What verifies the notes under this name, the newest key first."""
    lines = transaction.rows(_PUBLIC_KEYS, {})
    return [VerifierKey(name, base64.b64decode(public)) for (public,) in lines]


async def verifier_keys(session: AsyncSession, name: str) -> list[VerifierKey]:
    """See `read_verifier_keys`."""
    return await within(session, read_verifier_keys, name)


def encoded(public: bytes) -> str:
    """A public key as it is stored and shown."""
    return base64.b64encode(public).decode()
