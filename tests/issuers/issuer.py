"""An issuer that signs whatever it is asked to: the valid token, and each wrong one beside it."""

import base64
import hmac
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from joserfc import jws
from joserfc.jwk import ECKey, Key, RSAKey

ISSUER = "https://token.actions.githubusercontent.com"
AUDIENCE = "countersign"
START = datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=UTC)
"""When the clock of tests starts."""
_LONG_KEY = Path(__file__).with_name("long_key.pem")


@cache
def rsa_key(name: str, bits: int = 2048) -> RSAKey:
    """The RSA key called `name`, the same one all through a run: making one takes long."""
    return RSAKey.generate_key(bits, parameters={"kid": name, "use": "sig", "alg": "RS256"})


@cache
def long_rsa_key() -> RSAKey:
    """An RSA key of 8,192 bits, called `long`, which only tests use: making one takes ten seconds.

    So does the check of its primes when it is loaded.
    """
    key = load_pem_private_key(_LONG_KEY.read_bytes(), None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(key, RSAPrivateKey)
    return RSAKey(key, key, {"kid": "long", "use": "sig", "alg": "RS256"})


@cache
def ec_key(name: str) -> ECKey:
    return ECKey.generate_key("P-256", parameters={"kid": name, "use": "sig", "alg": "ES256"})


def public_jwk(key: Key, **changes: Any) -> dict[str, Any]:
    """`key` as an issuer publishes it, with `changes`; the value `...` takes a member out."""
    members = {**key.as_dict(private=False), **changes}
    return {name: value for name, value in members.items() if value is not ...}


def segment(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def as_json(value: object) -> bytes:
    """`value` as issuers write it."""
    return json.dumps(value, separators=(",", ":")).encode()


def compact(header: bytes, payload: bytes, signature: bytes = b"") -> str:
    """A token of these three parts, whatever they are."""
    return f"{segment(header)}.{segment(payload)}.{segment(signature)}"


def signature_of(token: str) -> bytes:
    part = token.rpartition(".")[2]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@dataclass
class Issuer:
    """Publishes `jwks`, signs with `key`. Counts what it is asked over HTTP."""

    url: str = ISSUER
    key: Key = field(default_factory=lambda: rsa_key("first"))
    alg: str = "RS256"
    now: datetime = START
    jwks: dict[str, Any] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.jwks:
            self.publish(self.key)

    def publish(self, *keys: Key) -> None:
        self.jwks = {"keys": [public_jwk(key) for key in keys]}

    def rotate(self, name: str) -> None:
        """Sign with a new key from now on; the old one stays published beside it."""
        old, self.key = self.key, rsa_key(name)
        self.publish(self.key, old)

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a good token with `changes`; the value `...` takes a member out."""
        now = int(self.now.timestamp())
        members = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "repo:acme/payments:ref:refs/heads/main",
            "repository": "acme/payments",
            "repository_owner": "acme",
            "repository_id": "123456789",
            "event_name": "push",
            "run_id": "9876543210",
            "jti": "6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11",
            "iat": now,
            "nbf": now,
            "exp": now + 300,
        } | changes
        return {name: value for name, value in members.items() if value is not ...}

    def header(self, **changes: Any) -> dict[str, Any]:
        """The header of a good token with `changes`; the value `...` takes a member out."""
        members = {"typ": "JWT", "alg": self.alg, "kid": self.key.kid} | changes
        return {name: value for name, value in members.items() if value is not ...}

    def sign(self, *, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token with `changes` to its claims, and to its header, under a good signature."""
        return self.sign_raw(
            as_json(self.header(**(header or {}))), as_json(self.claims(**changes))
        )

    def sign_raw(self, header: bytes, payload: bytes) -> str:
        """A token of these bytes as they are, under a good signature of `key`."""
        return self.sign_input(f"{segment(header)}.{segment(payload)}")

    def sign_input(self, signing_input: str) -> str:
        """A token that begins with `signing_input`, whatever that is, under a good signature."""
        algorithm = jws.JWSRegistry.algorithms[self.alg]
        return f"{signing_input}.{segment(algorithm.sign(signing_input.encode(), self.key))}"

    def sign_with_secret(self, secret: bytes, **changes: Any) -> str:
        """A token under HS256 with `secret`; the library would refuse some for what they are."""
        header, payload = as_json(self.header(alg="HS256")), as_json(self.claims(**changes))
        signing_input = f"{segment(header)}.{segment(payload)}"
        return f"{signing_input}.{segment(hmac.digest(secret, signing_input.encode(), 'sha256'))}"

    def transport(self) -> httpx2.MockTransport:
        """The network as far as this issuer goes: discovery and keys."""
        return httpx2.MockTransport(self._counted)

    def _counted(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(str(request.url))
        return self.answer(request)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        discovery = f"{self.url}/.well-known/openid-configuration"
        jwks_uri = f"{self.url}/.well-known/jwks"
        if request.url == discovery:
            return httpx2.Response(200, json={"issuer": self.url, "jwks_uri": jwks_uri})
        if request.url == jwks_uri:
            return httpx2.Response(200, json=self.jwks)
        return httpx2.Response(404)
