"""Statements as others read them: DSSE by securesystemslib, statements by in-toto-attestation."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"


def payload_of(envelope: dict[str, Any]) -> Any:
    """What an envelope says, unverified."""
    return json.loads(base64.b64decode(envelope["payload"]))


def verified(envelope: dict[str, Any], key_id: str, public: bytes) -> Any:
    """What `envelope` says, once both libraries accept it; they raise what they raise."""
    key = Ed25519PublicKey.from_public_bytes(public)
    signed = Envelope.from_dict(json.loads(json.dumps(envelope)))
    signed.verify([SSlibKey.from_crypto(key, keyid=key_id)], threshold=1)
    assert signed.payload_type == PAYLOAD_TYPE
    statement = json_format.Parse(signed.payload, statement_pb2.Statement())
    Statement.copy_from_pb(statement).validate()
    return json.loads(signed.payload)
