"""Verifies Sigstore's bundles offline: certificate, signature, entry in the log, and identity.

The extra `sigstore` takes half a second and 30 MB, so only the process that parses attestations
imports it.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from service.packages.proxy.documents import decode_untrusted

_BUNDLES_MAX: Final = 8
_ROOT: Final = "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"
_IN_TOTO: Final = "application/vnd.in-toto+json"

REPOSITORY: Final = "1.3.6.1.4.1.57264.1.12"
"""The extension of Fulcio's certificates that names the source repository."""

_BUILD_CONFIG: Final = "1.3.6.1.4.1.57264.1.18"
"""The one that names the workflow, and of which ref it is."""

_LONG: Final = 0x81
"""In DER, the length is in one more byte."""


class Forge(NamedTuple):
    """Who vouches for its builds, its address, and where its workflows are in a repository."""

    issuer: str
    address: str
    workflows: str


FORGES: Final = {
    "GitHub": Forge(
        "https://token.actions.githubusercontent.com", "https://github.com", "/.github/workflows/"
    ),
    "GitLab": Forge("https://gitlab.com", "https://gitlab.com", "//"),
}


class Subject(msgspec.Struct):
    """What a statement is about."""

    name: str
    digest: dict[str, str]


class Statement(msgspec.Struct, rename="camel"):
    """An in-toto statement, as far as it is read."""

    subject: list[Subject]
    predicate_type: str


_STATEMENT: Final = msgspec.json.Decoder(Statement)


@dataclass(frozen=True, slots=True)
class Identity:
    """A policy of sigstore: whose certificate it must be.

    That of pypi-attestations cannot be had without a trusted root of the home directory. `workflow`
    is what its address begins with.
    """

    issuer: str
    repository: str
    workflow: str

    def verify(self, certificate: Any) -> None:  # noqa: ANN401 - of the extra
        """Raise an error if it is another's."""
        from sigstore.verify.policy import AllOf, OIDCIssuerV2, OIDCSourceRepositoryURI

        AllOf([OIDCIssuerV2(self.issuer), OIDCSourceRepositoryURI(self.repository)]).verify(
            certificate
        )
        if not extension(certificate, _BUILD_CONFIG).startswith(self.workflow):
            raise ValueError("another workflow")


def extension(certificate: Any, oid: str) -> str:  # noqa: ANN401 - imported late
    """The text of an extension. Raises ValueError if there is none."""
    (found,) = (each for each in certificate.extensions if each.oid.dotted_string == oid)
    encoded: bytes = found.value.public_bytes()  # a UTF8String in DER
    return encoded[3 if encoded[1] == _LONG else 2 :].decode()


def attested(
    bundles: Callable[[bytes], tuple[Identity, Iterable[Any]]],
    subjects: Callable[[Statement], Iterable[str]],
    body: bytes,
) -> list[str]:
    """The `subjects` of the statements in a registry's attestations, if all are of one identity.

    None without the extra. `bundles` reads that identity, and Sigstore's bundles.
    """
    try:
        identity, said = bundles(body)
        statements = [_verified(each, identity) for each in islice(said, _BUNDLES_MAX)]
        return [subject for each in statements for subject in subjects(each)]
    except Exception:  # hostile JSON in libraries of others: nothing is proved
        return []


def _verified(bundle: Any, identity: Identity) -> Statement:  # noqa: ANN401 - of the extra
    is_old = bundle.log_entry._inner.kind_version.kind == "intoto"
    verify = _verify_intoto if is_old else _verifier().verify_dsse
    payload_type, payload = verify(bundle, identity)
    if payload_type != _IN_TOTO:
        raise ValueError("no statement of in-toto")
    return decode_untrusted(_STATEMENT.decode, payload)


def _verify_intoto(bundle: Any, identity: Identity) -> tuple[str, bytes]:  # noqa: ANN401
    """As `verify_dsse`, for the kind of log entry of npm before 11, which sigstore reads not.

    Its body must have this payload's digest, and these signatures and no others.
    """
    from cryptography.x509 import load_pem_x509_certificate
    from sigstore import dsse

    entry, envelope = bundle.log_entry._inner, bundle._dsse_envelope
    kind, certificate = entry.kind_version, bundle.signing_certificate
    logged = msgspec.json.decode(entry.canonicalized_body)
    content = logged["spec"]["content"]
    signatures = [
        (b64decode(b64decode(each["sig"])), load_pem_x509_certificate(b64decode(each["publicKey"])))
        for each in content["envelope"]["signatures"]
    ]
    digest = sha256(envelope._inner.payload).hexdigest()
    if (
        (logged["kind"], logged["apiVersion"]) != ("intoto", "0.0.2")
        or content["payloadHash"] != {"algorithm": "sha256", "value": digest}
        or signatures != [(each.sig, certificate) for each in envelope._inner.signatures]
    ):
        raise ValueError("the log entry is of another statement")
    # It takes the log's time, which is signed with either kind, of this one alone.
    kind.kind, kind.version = "dsse", "0.0.1"
    _verifier()._verify_common_signing_cert(bundle, identity)
    dsse._verify(certificate.public_key(), envelope)
    return envelope._inner.payload_type, envelope._inner.payload


@cache
def _verifier() -> Any:  # noqa: ANN401 - of the extra
    """With the trusted root that the package has; not the one that any program may update."""
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    root = files("sigstore._store") / _ROOT / "trusted_root.json"
    return Verifier(trusted_root=TrustedRoot.from_file(str(root)))
