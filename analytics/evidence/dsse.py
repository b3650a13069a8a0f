"""Signed envelopes (DSSE), in which a signature is of a payload together with its type.

https://github.com/secure-systems-lab/dsse defines the format.
"""

import base64
from collections.abc import Collection

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analytics.evidence.notes import is_signed


class InvalidEnvelope(ValueError):
    """Text that is no envelope of this type, or that is not signed by a known key."""


class Signature(msgspec.Struct, kw_only=True):
    """A signature in base64, and a hint which key it is of."""

    keyid: str
    sig: str


class Envelope(msgspec.Struct, kw_only=True, rename="camel"):
    """A payload in base64, what it is, and who signed the two."""

    payload_type: str
    payload: str
    signatures: list[Signature]


def seal(private: Ed25519PrivateKey, key_id: str, payload_type: str, payload: bytes) -> Envelope:
    """`payload`, signed; the same bytes each time."""
    signature = private.sign(_signed(payload_type, payload))
    return Envelope(
        payload_type=payload_type,
        payload=base64.b64encode(payload).decode(),
        signatures=[Signature(keyid=key_id, sig=base64.b64encode(signature).decode())],
    )


def unseal(envelope: bytes, payload_type: str, keys: Collection[bytes]) -> bytes:
    """The payload of `envelope`, once one of `keys` (32 bytes each) signed it.

    Raises InvalidEnvelope.
    """
    try:
        read = msgspec.json.decode(envelope, type=Envelope)
        payload = base64.b64decode(read.payload, validate=True)
        signatures = [base64.b64decode(each.sig, validate=True) for each in read.signatures]
    except ValueError as error:
        raise InvalidEnvelope(f"not a DSSE envelope: {error}") from error
    if read.payload_type != payload_type:
        raise InvalidEnvelope(f"its payload is {read.payload_type[:80]}, not {payload_type}")
    signed = _signed(payload_type, payload)
    if not any(is_signed(key, signed, each) for key in keys for each in signatures):
        raise InvalidEnvelope("none of the keys signed it as it is")
    return payload


def _signed(payload_type: str, payload: bytes) -> bytes:
    """What is signed: the pre-authentication encoding of both."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
