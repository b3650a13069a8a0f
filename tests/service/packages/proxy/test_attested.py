"""Publishers whose attestations are verified: real ones of two projects on PyPI, offline."""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.packages.pypi.ecosystem import PYPI
from tests.service.packages.proxy.proxied import OLD, Proxied, wheel_of
from tests.service.packages.proxy.test_publishers import attest, install, url_of

FOLDER = Path(__file__).parent.parent / "pypi" / "attested"
GITHUB, GITLAB = (
    json.loads((FOLDER / f"{name}.json").read_text()) for name in ("github", "gitlab")
)
OF_GITHUB = "9bb1add04b1b4e182be6b0b80931593f7a291eb49d69b4fd728a5d4cbcdc4bd3"
OF_GITLAB = "c1ca9b0d85df1606451098233018534497bf584362e10e4a8c21dfaea92c02a8"


def verified(provenance: Any) -> list[str]:
    return PYPI.attested(json.dumps(provenance).encode())


def changed(path: str, value: Any) -> Any:
    """The provenance of GitHub, with another value at this path."""
    provenance = json.loads(json.dumps(GITHUB))
    *parents, name = path.split(".")
    at: Any = provenance["attestation_bundles"][0]
    for each in parents:
        at = at[int(each) if each.isdigit() else each]
    at[name] = value
    return provenance


def test_the_files_that_a_publisher_has_attested() -> None:
    assert verified(GITHUB) == [f"sha256:{OF_GITHUB}"]
    assert verified(GITLAB) == [f"sha256:{OF_GITLAB}"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("publisher.repository", "mallory/pypi-attestations"),
        ("publisher.workflow", "other.yml"),
        ("publisher", GITLAB["attestation_bundles"][0]["publisher"]),
        (
            "attestations.0.envelope",
            GITLAB["attestation_bundles"][0]["attestations"][0]["envelope"],
        ),
        (
            "attestations.0.verification_material",
            GITLAB["attestation_bundles"][0]["attestations"][0]["verification_material"],
        ),
        ("attestations.0.verification_material.transparency_entries", []),
        ("attestations", []),
        ("attestations", [{}]),
        ("publisher", None),
    ],
)
def test_one_wrong_part_proves_nothing(path: str, value: Any) -> None:
    """Identity, statement, signature, certificate and log entry belong together."""
    assert verified(changed(path, value)) == []


@pytest.mark.parametrize(
    ("provenance", "more"), [(GITLAB, "workflow"), (GITHUB, "workflow_filepath")]
)
def test_a_publisher_is_named_by_what_is_verified(provenance: Any, more: str) -> None:
    """Others could be made of the same attestations."""
    (bundle,) = provenance["attestation_bundles"]
    publisher = bundle["publisher"] | {more: "other.yml"}
    said = {**provenance, "attestation_bundles": [bundle | {"publisher": publisher}]}

    assert PYPI.publisher(said) == PYPI.publisher(provenance)


def test_without_the_extra_nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypi_attestations", None)

    assert verified(GITHUB) == []


async def publish(proxied: Proxied, digest: str) -> None:
    """Pad 1.0 of GitHub and, 40 days later, 1.1 of GitLab, with this digest."""
    said = {"1.0": (GITHUB, OF_GITHUB), "1.1": (GITLAB, digest)}
    wheels = []
    for number, (version, (provenance, sha256)) in enumerate(said.items()):
        attest(proxied.registry, version, json.dumps(provenance).encode())
        at, url = OLD + timedelta(days=40 * number), url_of(proxied.registry, version)
        wheels.append(wheel_of("pad", version, at=at, provenance=url, hashes={"sha256": sha256}))
    proxied.publishes("pad", *wheels)
    await proxied.policy(trust={})


@pytest.mark.parametrize(("digest", "is_verified"), [(OF_GITLAB, True), ("ab" * 32, False)])
async def test_a_row_says_that_both_publishers_are_proved(
    proxied: Proxied, digest: str, is_verified: bool
) -> None:
    """An attestation of another file proves nothing of this one."""
    await publish(proxied, digest)

    assert await install(proxied, "1.1") == 302

    (row,) = await proxied.rows()
    said = row["payload"]
    assert said["publisher_before"] == "GitHub trailofbits/pypi-attestations release.yml"
    assert said["publisher_now"] == "GitLab facutuesca/gitlab-oidc-project .gitlab-ci.yml"
    assert said["verified"] is is_verified


async def test_a_second_request_verifies_nothing_again(proxied: Proxied) -> None:
    """What was proved is stored with who published the file."""
    await publish(proxied, OF_GITLAB)
    await install(proxied, "1.1")
    proxied.registry.says("/integrity/pad/1.1/provenance", b"{}", 500)
    proxied.clock.advance(days=1)

    assert await install(proxied, "1.1") == 302
    assert [row["payload"]["verified"] for row in await proxied.rows()] == [True, True]
