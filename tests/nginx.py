"""The documented example of nginx as a process of this user, on a free port, with a test's CA."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from service.core.settings import REPOSITORY
from tests.interpreters import find_program
from tests.polling import HANG_S
from tests.processes.homes import Server, eventually, free_port

NGINX: Final = find_program("nginx")
EXAMPLE: Final = REPOSITORY / "docs" / "deployment" / "nginx.conf"


@dataclass(frozen=True)
class Certificates:
    """The certificate of an authority, and a key with the certificate that it has signed."""

    authority: Path
    key: Path
    certificate: Path


def make_certificates(folder: Path, host: str = "audit.example.com") -> Certificates:
    """Of a server that is `host` and 127.0.0.1, signed by an authority of its own.

    A certificate that signs itself is not enough: rustls takes no authority's for a server's.
    """
    now = datetime.now(UTC)
    own, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def begun(name: str, issuer: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(issuer))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
        )

    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    authority = (
        begun("tests' authority", "tests' authority", own.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .sign(own, hashes.SHA256())
    )
    names = [x509.DNSName(host), x509.IPAddress(IPv4Address("127.0.0.1"))]
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key())
    server = (
        begun(host, "tests' authority", key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer_id, critical=False)
        .sign(own, hashes.SHA256())
    )
    made = Certificates(*(folder / name for name in ("authority.pem", "key.pem", "server.pem")))
    pem = serialization.Encoding.PEM
    made.authority.write_bytes(authority.public_bytes(pem))
    made.certificate.write_bytes(server.public_bytes(pem))
    plain = serialization.NoEncryption()
    made.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return made


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@contextmanager
def running_nginx(
    folder: Path, https: int, upstream: int, changes: Mapping[str, str] | None = None
) -> Iterator[Certificates]:
    """The example on the port `https` of 127.0.0.1; the service is on the port `upstream`.

    `changes` are made to its text.
    """
    assert NGINX is not None
    made = make_certificates(folder)
    conf = _placed(folder, made, https, upstream, changes or {})
    command = [NGINX, "-p", str(folder), "-c", str(conf), "-e", "stderr"]
    tried = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    nginx = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        eventually(Server(nginx, https, conf).is_listening, "nginx listens")
        yield made
    finally:
        nginx.terminate()
        nginx.wait(HANG_S)


def _placed(
    folder: Path, made: Certificates, https: int, upstream: int, changes: Mapping[str, str]
) -> Path:
    """The example as a whole configuration, on other ports and with these certificates."""
    text = EXAMPLE.read_text()
    text = re.sub(r"^\s*listen \[::\].*\n", "", text, flags=re.MULTILINE)
    for before, after in {
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "listen 443 ": f"listen 127.0.0.1:{https} ",
        "127.0.0.1:8080;": f"127.0.0.1:{upstream};",
        "/etc/letsencrypt/live/audit.example.com/fullchain.pem": str(made.certificate),
        "/etc/letsencrypt/live/audit.example.com/privkey.pem": str(made.key),
        "/var/log/nginx/countersign.log": str(folder / "access.log"),
        **changes,
    }.items():
        assert before in text
        text = text.replace(before, after)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    whole = folder / "nginx.conf"
    whole.write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr;\n"
        f"events {{}}\nhttp {{\n{places}{text}}}\n"
    )
    return whole
