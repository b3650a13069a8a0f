"""Another publisher than before, as attestations name them: PEP 740 on PyPI, SLSA on npm."""

import json
from datetime import timedelta
from typing import Any

import pytest

from service.packages.proxy import registries
from tests.package_documents import npm_version, packument
from tests.replaced import replaced
from tests.service.packages.proxy.proxied import OLD, Proxied, wheel_of
from tests.service.packages.proxy.registry import FakeRegistry
from tests.service.packages.proxy.sigstore_signer import SLSA, Signer

OURS = {"kind": "GitHub", "repository": "acme/pad", "workflow": "release.yml"}
THEIRS = OURS | {"repository": "mallory/pad"}
SIGNER = Signer()


def provenance(publisher: Any) -> bytes:
    """What PyPI answers of a file's attestations, but for these themselves."""
    bundle = {"publisher": publisher, "attestations": []}
    return json.dumps({"version": 1, "attestation_bundles": [bundle]}).encode()


def attestations(repository: str, predicate_type: str = SLSA, *, said: str = "") -> bytes:
    """What npm's registry answers, with a provenance signed in this repository.

    `said` is what the provenance itself says.
    """
    workflow = {"repository": said or repository, "path": ".github/workflows/release.yml"}
    build = {"buildDefinition": {"externalParameters": {"workflow": workflow}}}
    bundle = SIGNER.bundle({"subject": [], "predicate": build}, repository)
    publish = {"predicateType": "https://github.com/npm/attestation", "bundle": {}}
    return json.dumps(
        {"attestations": [publish, {"predicateType": predicate_type, "bundle": bundle}]}
    ).encode()


def url_of(registry: FakeRegistry, version: str) -> str:
    return f"{registry.url}/integrity/pad/{version}/provenance"


def attest(registry: FakeRegistry, version: str, body: bytes) -> None:
    registry.says(f"/integrity/pad/{version}/provenance", body, content_type="application/json")


async def pypi(proxied: Proxied, *publishers: Any, **policy: Any) -> None:
    """Pad 1.0, 1.1 and so on, each 40 days after the one before, and who published each."""
    wheels = []
    for number, publisher in enumerate(publishers):
        version = f"1.{number}"
        url = url_of(proxied.registry, version)
        at = OLD + timedelta(days=40 * number)
        wheels.append(wheel_of("pad", version, at=at, provenance=url))
        if publisher is not None:
            body = publisher if isinstance(publisher, bytes) else provenance(publisher)
            attest(proxied.registry, version, body)
    proxied.publishes("pad", *wheels)
    await proxied.policy(**({"trust": {}} | policy))


async def install(proxied: Proxied, version: str) -> int:
    path = await proxied.path_of("pad", f"pad-{version}-py3-none-any.whl")
    return int((await proxied.get(path)).status_code)


async def test_another_publisher_on_pypi_is_refused(proxied: Proxied):
    await pypi(proxied, OURS, OURS, THEIRS)

    assert [await install(proxied, version) for version in ("1.0", "1.1", "1.2")] == [200, 200, 302]
    row = (await proxied.rows())[-1]
    assert row["event"] == "trust_downgraded"
    assert row["payload"] == {
        "level_before": "provenance",
        "level_now": "provenance",
        "version_before": "1.1",
        "publisher_before": "GitHub acme/pad release.yml",
        "publisher_now": "GitHub mallory/pad release.yml",
        "verified": False,
    }


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (OURS, OURS, 200),
        (OURS, OURS | {"environment": "pypi"}, 200),
        (OURS, OURS | {"workflow": "other.yml"}, 302),
        (OURS, {"kind": "GitLab", "repository": "acme/pad", "workflow_filepath": "ci.yml"}, 302),
        (OURS, {"kind": "GitHub"}, 302),
        (OURS, "mallory", 302),
        (OURS, b'{"attestation_bundles": []}', 302),
        (OURS, None, 200),
        (OURS, b"<html>Sign in</html>", 200),
        (None, THEIRS, 200),
        ({}, THEIRS, 200),
    ],
)
async def test_who_counts_as_another(proxied: Proxied, first: Any, second: Any, status: int):
    """One that cannot be read is another; one that cannot be fetched is not known."""
    await pypi(proxied, first, second)

    assert await install(proxied, "1.1") == status


async def test_a_publisher_is_compared_once_it_is_settled(proxied: Proxied):
    """A release just before does not vouch for the next: both may be of a takeover."""
    wheels = [
        wheel_of("pad", version, at=OLD + timedelta(days=days), provenance=url)
        for version, days in (("1.0", 0), ("1.1", 100), ("1.2", 105), ("1.3", 140))
        if (url := url_of(proxied.registry, version))
    ]
    for version, publisher in (("1.0", OURS), ("1.1", THEIRS), ("1.2", THEIRS), ("1.3", THEIRS)):
        attest(proxied.registry, version, provenance(publisher))
    proxied.publishes("pad", *wheels)
    await proxied.policy(trust={})

    statuses = [await install(proxied, version) for version in ("1.1", "1.2", "1.3")]

    assert statuses == [302, 302, 200]


async def test_attestations_are_fetched_once(proxied: Proxied):
    await pypi(proxied, OURS, OURS)
    for _ in range(3):
        assert await install(proxied, "1.1") == 200
        proxied.clock.advance(days=1)

    assert [proxied.registry.times(f"/integrity/pad/1.{n}/provenance") for n in (0, 1)] == [1, 1]


@pytest.mark.parametrize(
    "policy",
    [
        {"trust": None},
        {"trust": {"exempt": [{"ecosystem": "pypi", "package": "pad", "versions": "==1.1"}]}},
        {"trust": {"ignore_after_days": 30}},
        {"deny": [{"ecosystem": "pypi", "package": "pad", "versions": "==1.1"}]},
    ],
)
async def test_what_is_decided_already_needs_no_attestations(proxied: Proxied, policy: Any):
    await pypi(proxied, OURS, THEIRS, **policy)

    assert await install(proxied, "1.1") == (302 if "deny" in policy else 200)
    assert not any("integrity" in asked.path for asked in proxied.registry.asked)


async def test_what_is_only_marked_is_served_and_named(proxied: Proxied):
    await pypi(proxied, OURS, THEIRS, trust={"action": "mark"})

    assert await install(proxied, "1.1") == 200
    (row,) = await proxied.rows()
    assert row["event"] == "install_would_block"
    assert row["payload"]["trust"]["publisher_now"] == "GitHub mallory/pad release.yml"


async def test_a_document_leads_to_no_other_origin(proxied: Proxied, elsewhere: FakeRegistry):
    first, second = (
        wheel_of("pad", version, at=at, provenance=f"{elsewhere.url}/{version}")
        for version, at in (("1.0", OLD), ("1.1", OLD + timedelta(days=9)))
    )
    proxied.publishes("pad", first, second)
    await proxied.policy(trust={})

    assert await install(proxied, "1.1") == 200
    assert elsewhere.asked == []


async def test_a_registry_that_hangs_delays_no_file(proxied: Proxied):
    """Levels decide then."""
    await pypi(proxied, OURS, THEIRS)
    with replaced((registries, "PUBLISHER_S", 0.0)):
        assert await install(proxied, "1.1") == 200


async def npm(proxied: Proxied, *bodies: bytes) -> None:
    """Pad 1.0.0, 1.1.0 and so on, with these answers of npm's registry on their attestations."""
    proxied.registry.says("/tarballs/pad.tgz", b"pad")
    at = {f"1.{n}.0": OLD + timedelta(days=40 * n) for n in range(len(bodies))}
    offered = []
    for version, body in zip(at, bodies, strict=True):
        said = {"url": url_of(proxied.registry, version), "provenance": {"predicateType": SLSA}}
        tarball = f"{proxied.registry.url}/tarballs/pad.tgz"
        offered.append(npm_version("pad", version, tarball, b"pad", {"attestations": said}))
        attest(proxied.registry, version, body)
    body = packument("pad", offered, at)
    proxied.registry.says("/npm/pad", body, content_type="application/json")
    await proxied.policy(trust={})


@pytest.mark.parametrize(
    ("now", "status"),
    [
        (attestations("https://github.com/acme/pad"), 200),
        (attestations("https://github.com/mallory/pad"), 302),
        (attestations("https://github.com/acme/pad", "https://slsa.dev/other"), 302),
        (attestations("https://github.com/acme/pad", "https://slsa.dev/provenance/v0.2"), 200),
        (attestations("https://github.com/acme/pad", said="https://github.com/mallory/pad"), 200),
        (attestations("https://github.com/mallory/pad", said="https://github.com/acme/pad"), 302),
        (b'{"attestations": [{"predicateType": 1}]}', 302),
        (
            attestations("https://github.com/acme/pad").replace(
                b'"rawBytes": "', b'"rawBytes": "A'
            ),
            302,
        ),
        (attestations("https://github.com/acme/pad").replace(b'"rawBytes"', b'"other"'), 302),
    ],
)
async def test_another_repository_on_npm_is_refused(proxied: Proxied, now: bytes, status: int):
    """The certificate counts, not what a provenance says; one that is none hides nothing."""
    await npm(proxied, attestations("https://github.com/acme/pad"), now)

    refused = await proxied.get("npm/pad/-/pad-1.1.0.tgz")

    assert refused.status_code == status
    if status == 302:
        row = (await proxied.rows())[-1]
        assert row["payload"]["publisher_before"] == "https://github.com/acme/pad"
        assert "trust+downgraded" in refused.headers["location"]
