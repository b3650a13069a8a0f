"""npm's provenance is verified: a real one of the registry, and ones of a Sigstore in small."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.packages import sigstore_bundles
from service.packages.ecosystem import Release
from service.packages.npm.ecosystem import NPM
from tests.replaced import replaced
from tests.service.packages.proxy.proxied import Proxied
from tests.service.packages.proxy.sigstore_signer import SLSA, Signer, b64
from tests.service.packages.proxy.test_publishers import npm

REAL = Path(__file__).parent.parent / "npm" / "attested" / "sigstore-2.3.1.json"
DIGEST = (
    "f06fbf5c353cc0db093904b9cac0d53b412d83dff6b80e6047d9786708a38e5c"
    "3105cad4e913dfc22dbe8c999b3fe029d47969fe75406843b8163db6fd22f681"
)
ACME, MALLORY = "https://github.com/acme/pad", "https://github.com/mallory/pad"
V02 = "https://slsa.dev/provenance/v0.2"
CONTENT = b"pad"
SIGNER, OTHER_SIGNER = Signer(), Signer()


def verified(said: Any) -> list[str]:
    return NPM.attested(json.dumps(said).encode())


def real() -> tuple[Any, Any]:
    """What the registry has answered, and the bundle of the provenance in it."""
    said = json.loads(REAL.read_text())
    return said, said["attestations"][1]["bundle"]


def test_a_real_provenance_is_verified() -> None:
    """Its log entry is of the kind that npm before 11 made."""
    said, _ = real()

    assert NPM.publisher(said) == "https://github.com/sigstore/sigstore-js"
    (release,) = NPM.subjects(_release("sigstore", "2.3.1", DIGEST))
    assert verified(said) == [release]


def _release(name: str, version: str, sha512: str) -> Release:
    return Release(NPM.ecosystem, name, version, digests=frozenset({f"sha512:{sha512}"}))


@pytest.mark.parametrize("version", ["0.1", "0.3"])
def test_all_forms_of_bundles_are_verified(version: str) -> None:
    """What is signed is the same in all."""
    said, bundle = real()
    bundle["mediaType"] = f"application/vnd.dev.sigstore.bundle+json;version={version}"
    if version == "0.3":
        material = bundle["verificationMaterial"]
        (material["certificate"],) = material.pop("x509CertificateChain")["certificates"]

    assert verified(said) != []


def _of(bundle: Any, path: str) -> tuple[Any, Any]:
    """The parent at a path, and the last name in it."""
    *parents, name = (int(each) if each.isdigit() else each for each in path.split("."))
    for each in parents:
        bundle = bundle[each]
    return bundle, name


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("dsseEnvelope.payload", b"2.3.1", b"2.3.2"),
        ("dsseEnvelope.signatures.0.sig", b"\x02", b"\x03"),
        ("verificationMaterial.tlogEntries.0.canonicalizedBody", b"intoto", b"other!"),
        ("verificationMaterial.tlogEntries.0.canonicalizedBody", b'"value":"', b'"value":"0'),
        ("verificationMaterial.tlogEntries.0.inclusionProof.rootHash", b"", b"\0"),
        ("verificationMaterial.tlogEntries.0.inclusionPromise.signedEntryTimestamp", b"", b"\0"),
        ("verificationMaterial.x509CertificateChain.certificates.0.rawBytes", b"push", b"pull"),
    ],
)
def test_one_changed_part_proves_nothing(path: str, before: bytes, after: bytes) -> None:
    said, bundle = real()
    parent, name = _of(bundle, path)
    changed = base64.b64decode(parent[name]).replace(before, after, 1)
    parent[name] = b64(changed)

    assert verified(said) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("verificationMaterial.tlogEntries.0.kindVersion.kind", "dsse"),
        ("verificationMaterial.tlogEntries.0.inclusionPromise", None),
        ("verificationMaterial.tlogEntries.0.inclusionProof", None),
        ("verificationMaterial.tlogEntries.0.integratedTime", "1715900000"),
        ("verificationMaterial.tlogEntries", []),
        ("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.4"),
    ],
)
def test_one_part_without_its_proof_proves_nothing(path: str, value: Any) -> None:
    """As npm's earliest bundles, which have no proof that the log includes them."""
    said, bundle = real()
    parent, name = _of(bundle, path)
    parent[name] = value

    assert verified(said) == []


@pytest.fixture
def trusted(tmp_path: Path) -> Iterator[Signer]:
    """The signer, which the verifier trusts."""
    with replaced((sigstore_bundles, "_ROOT", str(SIGNER.root(tmp_path)))):
        sigstore_bundles._verifier.cache_clear()
        yield SIGNER
    sigstore_bundles._verifier.cache_clear()


def statement(version: str, **changes: Any) -> dict[str, Any]:
    subject = {
        "name": changes.pop("name", f"pkg:npm/pad@{version}"),
        "digest": {"sha512": changes.pop("sha512", hashlib.sha512(CONTENT).hexdigest())},
    }
    return {"subject": [subject], "predicateType": SLSA} | changes


def answer(bundle: Any, predicate_type: str = SLSA) -> dict[str, Any]:
    return {"attestations": [{"predicateType": predicate_type, "bundle": bundle}]}


@pytest.mark.parametrize("kind", ["dsse", "intoto"])
@pytest.mark.parametrize("predicate_type", [SLSA, V02])
def test_either_kind_of_entry_and_of_provenance(
    trusted: Signer, kind: str, predicate_type: str
) -> None:
    said = statement("1.0.0", predicateType=predicate_type)

    proved = verified(answer(trusted.bundle(said, ACME, kind=kind), predicate_type))

    assert proved == list(
        NPM.subjects(_release("pad", "1.0.0", said["subject"][0]["digest"]["sha512"]))
    )


@pytest.mark.parametrize("kind", ["dsse", "intoto"])
@pytest.mark.parametrize(
    ("said", "repository", "signed"),
    [
        ({}, "https://elsewhere.test/acme/pad", {}),
        ({}, ACME, {"issuer": "https://gitlab.com"}),
        ({}, "https://github.com.test/acme/pad", {}),
        ({}, ACME, {"payload_type": "text/plain"}),
        ({"predicateType": "https://github.com/npm/attestation"}, ACME, {}),
        ({"subject": [{"name": "pkg:npm/pad@1.0.0", "digest": {"sha256": "ab"}}]}, ACME, {}),
        ({"subject": "pkg:npm/pad@1.0.0"}, ACME, {}),
    ],
)
def test_what_is_signed_must_be_a_provenance_of_a_forge(
    trusted: Signer, kind: str, said: Any, repository: str, signed: Any
) -> None:
    """Another issuer may let a build say of which repository it is."""
    bundle = trusted.bundle(statement("1.0.0", **said), repository, kind=kind, **signed)

    assert verified(answer(bundle)) == []


@pytest.mark.parametrize("kind", ["dsse", "intoto"])
def test_the_log_must_have_this_very_statement(trusted: Signer, kind: str) -> None:
    """Else a signature could be used that the log, and so its repository's owner, never saw."""
    bundle, other = (trusted.bundle(statement("1.0.0"), ACME, kind=kind) for _ in range(2))
    entries = other["verificationMaterial"]["tlogEntries"]
    assert verified(answer(bundle)) != []
    bundle["verificationMaterial"]["tlogEntries"] = entries

    assert verified(answer(bundle)) == []


@pytest.mark.parametrize("kind", ["dsse", "intoto"])
def test_one_authority_is_trusted(trusted: Signer, kind: str) -> None:
    assert verified(answer(OTHER_SIGNER.bundle(statement("1.0.0"), ACME, kind=kind))) == []


@pytest.mark.parametrize(
    ("said", "is_verified"),
    [
        ({}, True),
        ({"sha512": "ab" * 64}, False),
        ({"name": "pkg:npm/pad@1.0.0"}, False),
        ({"name": "pkg:npm/other@1.1.0"}, False),
    ],
)
async def test_a_row_says_that_both_repositories_are_proved(
    proxied: Proxied, trusted: Signer, said: Any, is_verified: bool
) -> None:
    """A provenance of another package, version or file proves nothing of this one."""
    before = trusted.bundle(statement("1.0.0"), ACME, kind="intoto")
    now = trusted.bundle(statement("1.1.0", **said), MALLORY)
    await npm(proxied, *(json.dumps(answer(bundle)).encode() for bundle in (before, now)))

    refused = await proxied.get("npm/pad/-/pad-1.1.0.tgz")

    assert refused.status_code == 302
    (row,) = await proxied.rows()
    payload = row["payload"]
    assert (payload["publisher_before"], payload["publisher_now"]) == (ACME, MALLORY)
    assert payload["verified"] is is_verified
