"""A software authenticator, and the browser's part in front of it: honest, unless told to lie."""

import hashlib
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256

ORIGIN = "http://localhost:8080"
PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def new_key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


@dataclass
class Credential:
    """One key pair, for one site and one person there."""

    rp_id: str
    user_handle: str
    id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    key: EllipticCurvePrivateKey = field(default_factory=new_key)
    sign_count: int = 0

    @property
    def public_key(self) -> dict[int, Any]:
        """As COSE has it (RFC 9053, 7.1.1): ES256."""
        numbers = self.key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (numbers.x, numbers.y))
        return {1: 2, 3: -7, -1: 1, -2: x, -3: y}


@dataclass
class Authenticator:
    """Makes credentials and proves to hold them. `lies` of a call stand in for what is true."""

    counts: bool = True
    credentials: list[Credential] = field(default_factory=list)

    def make(self, options: dict[str, Any], **lies: Any) -> dict[str, Any]:
        """What `navigator.credentials.create` of a page gives its script, as JSON."""
        made = Credential(options["rp"]["id"], options["user"]["id"])
        made.id = lies.get("credential_id", made.id)
        self.credentials.append(made)
        flags = lies.get("flags", PRESENT | VERIFIED) | ATTESTED
        public_key = lies.get("public_key", made.public_key)
        data = self._head(made, flags, lies) + bytes(16) + len(made.id).to_bytes(2, "big")
        attestation = {
            "fmt": "none",
            "attStmt": {},
            "authData": data + made.id + cbor2.dumps(public_key),
        } | lies.get("attestation", {})
        return self._answer(
            made,
            clientDataJSON=encoded(_client_data("webauthn.create", options, lies)),
            attestationObject=encoded(cbor2.dumps(attestation)),
            transports=["internal", "hybrid"],
        )

    def prove(self, options: dict[str, Any], **lies: Any) -> dict[str, Any]:
        """What `navigator.credentials.get` of a page gives its script, as JSON."""
        used = lies.get("credential", self.credentials[-1])
        if self.counts:
            used.sign_count += 1
        data = self._head(used, lies.get("flags", PRESENT | VERIFIED), lies)
        client_data = _client_data("webauthn.get", options, lies)
        key = lies.get("key", used.key)
        signature = key.sign(data + hashlib.sha256(client_data).digest(), ECDSA(SHA256()))
        return self._answer(
            used,
            clientDataJSON=encoded(client_data),
            authenticatorData=encoded(data),
            signature=encoded(signature),
            userHandle=lies.get("user_handle", used.user_handle),
        )

    def _head(self, credential: Credential, flags: int, lies: dict[str, Any]) -> bytes:
        rp_id = lies.get("rp_id", credential.rp_id)
        count = lies.get("sign_count", credential.sign_count)
        return hashlib.sha256(rp_id.encode()).digest() + bytes([flags]) + count.to_bytes(4, "big")

    def _answer(self, credential: Credential, **response: Any) -> dict[str, Any]:
        name = encoded(credential.id)
        return {
            "id": name,
            "rawId": name,
            "type": "public-key",
            "authenticatorAttachment": "platform",
            "clientExtensionResults": {},
            "response": response,
        }


def _client_data(kind: str, options: dict[str, Any], lies: dict[str, Any]) -> bytes:
    """What the browser says of the page that asked."""
    said = {
        "type": lies.get("type", kind),
        "challenge": lies.get("challenge", options["challenge"]),
        "origin": lies.get("origin", ORIGIN),
        "crossOrigin": lies.get("cross_origin", False),
    }
    return json.dumps(said).encode()
