"""An envelope's signature is of its payload together with its type."""

import base64
import json

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analytics.evidence.dsse import InvalidEnvelope, seal, unseal

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()
KIND = "http://example.com/HelloWorld"


def sealed(**changes: object) -> bytes:
    said = json.loads(msgspec.json.encode(seal(KEY, "key", KIND, b"hello world")))
    return json.dumps(said | changes).encode()


SIGNED = seal(KEY, "key", KIND, b"hello world").signatures[0].sig
SPACED = {"keyid": "key", "sig": f"{SIGNED[:4]} {SIGNED[4:]}"}


def test_what_is_signed_is_as_the_specification_has_it():
    """The example of DSSE's own text (protocol.md)."""
    (signature,) = seal(KEY, "key", KIND, b"hello world").signatures
    signed = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"

    assert base64.b64decode(signature.sig) == KEY.sign(signed)


def test_any_of_the_keys_may_have_signed():
    """Whatever the hint says: it is not signed itself."""
    signatures = [
        {"keyid": "key", "sig": base64.b64encode(bytes(64)).decode()},
        {"keyid": "", "sig": seal(KEY, "key", KIND, b"hello world").signatures[0].sig},
    ]

    assert unseal(sealed(), KIND, [OTHER, PUBLIC]) == b"hello world"
    assert unseal(sealed(signatures=signatures), KIND, [PUBLIC]) == b"hello world"


@pytest.mark.parametrize(
    ("envelope", "keys", "said"),
    [
        (sealed(payload="aGVsbG8gd29ybGQh"), [PUBLIC], "none of the keys"),
        (sealed(signatures=[]), [PUBLIC], "none of the keys"),
        (sealed(signatures=[{"keyid": "key", "sig": "AAAA"}]), [PUBLIC], "none of the keys"),
        (sealed(), [OTHER], "none of the keys"),
        (sealed(), [], "none of the keys"),
        (sealed(payloadType="text/plain"), [PUBLIC], "its payload is text/plain"),
        (sealed(payload="?"), [PUBLIC], "not a DSSE envelope"),
        (sealed(signatures=[SPACED]), [PUBLIC], "not a DSSE envelope"),
        (sealed(payload=None), [PUBLIC], "not a DSSE envelope"),
        (b"{", [PUBLIC], "not a DSSE envelope"),
        (b"\xff", [PUBLIC], "not a DSSE envelope"),
    ],
)
def test_anything_else_is_refused(envelope: bytes, keys: list[bytes], said: str):
    with pytest.raises(InvalidEnvelope, match=said):
        unseal(envelope, KIND, keys)
