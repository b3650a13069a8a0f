"""The key pairs that sign checkpoints, receipts and statements.

A private key is derived from COUNTERSIGN_SECRET_KEY and the key's id, so it is stored nowhere: a
copy of the database signs nothing. With another secret key the old ones are gone; what they signed
stays valid.
"""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.notes import VerifierKey, sign
from service.core.errors import Conflict
from service.core.ids import new_id
from service.core.secrets import derive_key
from service.store.tables import EvidenceKey
from service.store.transaction import Transaction

KEY_LOST: Final = Conflict.of(
    "COUNTERSIGN_SECRET_KEY is not the one that key {value} was derived from: set the former one,"
    " or begin a new key with `countersign evidence key rotate`",
    value="evk_5d7f9h1k3m5p7r9t",
)

_NEWEST_FIRST: Final = EvidenceKey.retired_at.is_not(None), EvidenceKey.created_at.desc()
_KEYS: Final = select(EvidenceKey.id, EvidenceKey.public, EvidenceKey.retired_at).order_by(
    *_NEWEST_FIRST
)
_TABLE: Final = cast("Table", EvidenceKey.__table__)
_RETIRE: Final = (
    update(_TABLE)
    .where(EvidenceKey.retired_at.is_(None))
    .values(retired_at=bindparam("now", type_=EvidenceKey.retired_at.type))
)
_ADD: Final = insert(_TABLE)


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


def find_signing_key(transaction: Transaction, secret_key: str) -> SigningKey | None:
    """The key that signs; None before the first one. Raises KEY_LOST."""
    for key_id, _, retired_at in transaction.rows(_KEYS, {}):
        if retired_at is None:
            key = find_key(transaction, secret_key, key_id)
            if key is None:
                raise KEY_LOST(value=key_id)
            return key
    return None


def find_key(transaction: Transaction, secret_key: str, key_id: str) -> SigningKey | None:
    """The key of this id; None if it can sign no longer."""
    publics = {stored_id: public for stored_id, public, _ in transaction.rows(_KEYS, {})}
    key = derive(secret_key, key_id) if key_id in publics else None
    return key if key and encoded(key.public) == publics[key_id] else None


def signing_key(transaction: Transaction, secret_key: str, now: datetime) -> SigningKey:
    """The key that signs, in a write transaction: the first one is begun. Raises KEY_LOST."""
    return find_signing_key(transaction, secret_key) or begin_key(transaction, secret_key, now)


def begin_key(transaction: Transaction, secret_key: str, now: datetime) -> SigningKey:
    """A new key, which signs from now on; those before it are retired."""
    transaction.run(_RETIRE, [{"now": now}])
    key = derive(secret_key, new_id("evk"))
    new = {"id": key.id, "public": encoded(key.public), "created_at": now, "retired_at": None}
    transaction.run(_ADD, [new])
    return key


def read_verifier_keys(transaction: Transaction, name: str) -> list[VerifierKey]:
    """What verifies the notes under this name, the newest key first."""
    lines = transaction.rows(_KEYS, {})
    return [VerifierKey(name, base64.b64decode(public)) for _, public, _ in lines]


def encoded(public: bytes) -> str:
    """A public key as it is stored and shown."""
    return base64.b64encode(public).decode()
