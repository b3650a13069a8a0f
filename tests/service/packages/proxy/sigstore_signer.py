"""Sigstore in small: an authority, a log of certificates and a log of entries, which sign bundles.

Bundles are of the forms that npm has published: entries of the kinds `dsse` and, before npm 10.9,
`intoto`.
"""

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME: Final = {"organization": "tests", "commonName": "tests' sigstore"}
AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
GITHUB: Final = "https://token.actions.githubusercontent.com"
SLSA: Final = "https://slsa.dev/provenance/v1"
IN_TOTO: Final = "application/vnd.in-toto+json"
_FULCIO: Final = "1.3.6.1.4.1.57264.1"
_SCTS: Final = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_SHA256: Final = hashes.SHA256()
_DER: Final = (
    serialization.Encoding.DER,
    serialization.PublicFormat.SubjectPublicKeyInfo,
)


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def fulcio(number: int, text: str) -> x509.UnrecognizedExtension:
    """An extension as Fulcio writes it: a UTF8String in DER."""
    size = len(text.encode())
    length = bytes([size]) if size < 0x80 else bytes([0x81, size])
    value = b"\x0c" + length + text.encode()
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{_FULCIO}.{number}"), value)


class Signer:
    """`bundle` signs statements as a workflow of a repository; `root` is what verifiers trust."""

    def __init__(self) -> None:
        self._key, self._ct, self._rekor = (ec.generate_private_key(ec.SECP256R1()) for _ in "123")
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME["commonName"])])
        usage = {"digital_signature": False, "key_cert_sign": True}
        builder = self._begun(self._name, self._key.public_key(), timedelta(days=900), usage)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self._authority = builder.add_extension(constraints, critical=True).sign(self._key, _SHA256)

    def root(self, folder: Path) -> Path:
        """A trusted root in this folder, which is returned."""
        log = {"hashAlgorithm": "SHA2_256", "baseUrl": "https://log.test"}
        validity = {"validFor": {"start": "2020-01-01T00:00:00Z"}}
        authority = b64(self._authority.public_bytes(serialization.Encoding.DER))

        def keyed(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            der = key.public_key().public_bytes(*_DER)
            details = {"keyDetails": "PKIX_ECDSA_P256_SHA_256", **validity}
            return {
                **log,
                "publicKey": {"rawBytes": b64(der), **details},
                "logId": {"keyId": b64(hashlib.sha256(der).digest())},
            }

        chain = {"certificates": [{"rawBytes": authority}]}
        trusted = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [keyed(self._rekor)],
            "ctlogs": [keyed(self._ct)],
            "certificateAuthorities": [
                {"subject": NAME, "uri": "https://ca.test", "certChain": chain, **validity}
            ],
            "timestampAuthorities": [],
        }
        (folder / "trusted_root.json").write_text(json.dumps(trusted))
        return folder

    def bundle(
        self,
        statement: dict[str, Any],
        repository: str,
        *,
        issuer: str = GITHUB,
        kind: str = "dsse",
        payload_type: str = IN_TOTO,
    ) -> dict[str, Any]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key, repository, issuer)
        payload = json.dumps(statement).encode()
        lengths = len(payload_type), len(payload)
        signed = b"DSSEv1 %d %s %d %s" % (lengths[0], payload_type.encode(), lengths[1], payload)
        signature = key.sign(signed, ec.ECDSA(_SHA256))
        entry = {"dsse": _dsse, "intoto": _intoto}[kind](payload, signature, certificate)
        raw = {"rawBytes": b64(certificate.public_bytes(serialization.Encoding.DER))}
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"certificate": raw, "tlogEntries": [self._logged(entry)]},
            "dsseEnvelope": {
                "payload": b64(payload),
                "payloadType": payload_type,
                "signatures": [{"sig": b64(signature), "keyid": ""}],
            },
        }

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid: timedelta, usage: Any
    ) -> x509.CertificateBuilder:
        names = (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("crl_sign", "encipher_only", "decipher_only"),
        )
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(AT)
            .not_valid_after(AT + valid)
            .add_extension(x509.KeyUsage(**dict.fromkeys(names, False), **usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(authority, critical=False)
        )

    def _certificate(
        self, key: ec.EllipticCurvePrivateKey, repository: str, issuer: str
    ) -> x509.Certificate:
        workflow = f"{repository}/.github/workflows/release.yml@refs/heads/main"
        usage = {"digital_signature": True, "key_cert_sign": False}
        builder = self._begun(x509.Name([]), key.public_key(), timedelta(minutes=10), usage)
        said = {8: issuer, 12: repository, 18: workflow}
        for extension, is_critical in (
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(workflow)]), True),
            *((fulcio(number, text), False) for number, text in said.items()),
        ):
            builder = builder.add_extension(extension, critical=is_critical)
        timestamps = self._timestamps(builder.sign(self._key, _SHA256))
        logged = x509.UnrecognizedExtension(_SCTS, timestamps)
        return builder.add_extension(logged, critical=False).sign(self._key, _SHA256)

    def _timestamps(self, certificate: x509.Certificate) -> bytes:
        """The list of one signed certificate timestamp (RFC 6962, 3.2 and 3.3), in DER."""
        tbs, milliseconds = certificate.tbs_certificate_bytes, int(AT.timestamp() * 1000)
        issuer = hashlib.sha256(self._key.public_key().public_bytes(*_DER)).digest()
        head = struct.pack("!BBQH", 0, 0, milliseconds, 1)
        signed = head + issuer + len(tbs).to_bytes(3, "big") + tbs + b"\0\0"
        signature = self._ct.sign(signed, ec.ECDSA(_SHA256))
        log = hashlib.sha256(self._ct.public_key().public_bytes(*_DER)).digest()
        one = b"\0" + log + struct.pack("!QHBBH", milliseconds, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(one) + 2, len(one)) + one
        return bytes([4, len(listed)]) + listed

    def _logged(self, entry: dict[str, Any]) -> dict[str, Any]:
        """The entry in a log that has no other."""
        body = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        log, at = hashlib.sha256(self._rekor.public_key().public_bytes(*_DER)).digest(), AT
        seconds = int(at.timestamp()) + 60
        promised = {"body": b64(body), "integratedTime": seconds, "logID": log.hex(), "logIndex": 0}
        promise = json.dumps(promised, sort_keys=True, separators=(",", ":")).encode()
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"log.test - 1\n1\n{b64(root)}\n"
        signature = b64(log[:4] + self._rekor.sign(note.encode(), ec.ECDSA(_SHA256)))
        return {
            "logIndex": "0",
            "logId": {"keyId": b64(log)},
            "kindVersion": {"kind": entry["kind"], "version": entry["apiVersion"]},
            "integratedTime": str(seconds),
            "inclusionPromise": {
                "signedEntryTimestamp": b64(self._rekor.sign(promise, ec.ECDSA(_SHA256)))
            },
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n— log.test {signature}\n"},
            },
            "canonicalizedBody": b64(body),
        }


def _hash(content: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}


def _pem(certificate: x509.Certificate) -> str:
    return b64(certificate.public_bytes(serialization.Encoding.PEM))


def _dsse(payload: bytes, signature: bytes, certificate: x509.Certificate) -> dict[str, Any]:
    signatures = [{"signature": b64(signature), "verifier": _pem(certificate)}]
    spec = {"envelopeHash": _hash(b""), "payloadHash": _hash(payload), "signatures": signatures}
    return {"kind": "dsse", "apiVersion": "0.0.1", "spec": spec}


def _intoto(payload: bytes, signature: bytes, certificate: x509.Certificate) -> dict[str, Any]:
    signatures = [{"publicKey": _pem(certificate), "sig": b64(b64(signature).encode())}]
    content = {
        "envelope": {"payloadType": IN_TOTO, "signatures": signatures},
        "hash": _hash(b""),
        "payloadHash": _hash(payload),
    }
    return {"kind": "intoto", "apiVersion": "0.0.2", "spec": {"content": content}}
