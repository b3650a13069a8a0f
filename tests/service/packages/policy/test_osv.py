"""What is read from OSV's records."""

import json
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from service.packages.policy.advisories import AdvisorySpec
from service.packages.policy.osv import OsvRecord, UnreadableRecord, parse_record

NPM = {"ecosystem": "npm", "name": "evil"}
PYPI = {"ecosystem": "PyPI", "name": "Evil_Package"}
SHA256, SHA1 = "ab" * 32, "cd" * 20


def record(*affected: dict[str, Any], **changes: Any) -> OsvRecord:
    """A record with these `affected` entries."""
    return parse_record(json.dumps({"id": "MAL-1", "affected": affected, **changes}).encode())


def said(*affected: dict[str, Any]) -> AdvisorySpec:
    """What the record says about its one package."""
    (spec,) = record(*affected).packages.values()
    return spec


def test_a_package_has_its_canonical_name() -> None:
    """Otherwise a rule would be looked for under a name that no request has."""
    packages = record({"package": NPM, "versions": ["1.0.0"]}, {"package": PYPI}).packages

    assert list(packages) == [(Ecosystem.NPM, "evil"), (Ecosystem.PYPI, "evil-package")]


def test_versions_and_ordered_ranges_are_read_and_commits_are_not() -> None:
    """GIT ranges speak of commits."""
    events = [{"introduced": "0"}, {"fixed": "1.0.0"}]

    spec = said(
        {
            "package": NPM,
            "versions": ["2.0.0"],
            "ranges": [
                {"type": "SEMVER", "events": events},
                {"type": "GIT", "repo": "x", "events": [{"introduced": "abc"}]},
                {
                    "type": "ECOSYSTEM",
                    "events": [{"introduced": "3.0.0", "last_affected": "4.0.0"}],
                },
            ],
        }
    )

    assert spec.versions == ["2.0.0"]
    assert spec.ranges == [
        [("introduced", "0"), ("fixed", "1.0.0")],
        [("introduced", "3.0.0"), ("last_affected", "4.0.0")],
    ]


@pytest.mark.parametrize(
    "integrity",
    [
        {"sha256": SHA256.upper()},
        [{"filename": "evil-1.0.tgz", "hashes": {"sha-256": [SHA256]}}],
        [{"algorithm": "sha256", "hash": SHA256}],
        {"file": "evil.whl", "digest": f"sha256:{SHA256}"},
        f"sha256-{'q6ur' * 10}q6s=",
    ],
)
def test_digests_of_files_are_read_in_the_forms_they_have(integrity: Any) -> None:
    specific = {"indicators": {"package_integrity": integrity, "domains": [SHA1]}}

    spec = said({"package": NPM, "database_specific": specific})

    assert spec.digests == [f"sha256:{SHA256}"]


def test_what_is_no_digest_of_a_file_is_left_out() -> None:
    """The digest of the report that a record was made of is no digest of a package."""
    specific = {
        "package_integrity": {"sha256": ["abc", SHA1], "sha1": SHA1, "md5": "00" * 16},
        "malicious-packages-origins": [{"sha256": SHA256}],
    }

    assert said({"package": NPM, "database_specific": specific}).digests == [f"sha1:{SHA1}"]


def test_a_withdrawn_record_says_nothing() -> None:
    """It was published in error."""
    withdrawn = record({"package": NPM, "versions": ["1.0.0"]}, withdrawn="2026-01-01T00:00:00Z")

    assert withdrawn.is_withdrawn
    assert withdrawn.packages == {}


def test_a_package_named_twice_is_affected_by_both() -> None:
    spec = said({"package": NPM, "versions": ["1.0.0"]}, {"package": NPM, "versions": ["2.0.0"]})

    assert spec.versions == ["1.0.0", "2.0.0"]


def test_packages_of_other_ecosystems_are_left_out() -> None:
    assert record({"package": {"ecosystem": "Debian:12", "name": "x"}}, {}).packages == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"id": 1}',
        b'{"id": ""}',
        b'{"id": "MAL 1"}',
        b'{"id": "\xff"}',
        b"[" * 100_000,
        json.dumps({"id": "M" * 201}).encode(),
        json.dumps({"id": "M", "affected": [{"package": NPM, "versions": [1]}]}).encode(),
        json.dumps({"id": "M", "affected": [{"package": {**NPM, "name": "a/../b"}}]}).encode(),
    ],
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        parse_record(data)


@pytest.mark.parametrize(
    "events",
    [
        [{"introduced": "abc"}],
        [{"introduced": "0"}, {"fixed": "1.x"}],
        [{"introduced": "0"}, {"surprise": "1.0.0"}],
        [{"introduced": "0"}] * 10_001,
    ],
)
def test_a_range_that_cannot_be_read_makes_the_record_unreadable(
    events: list[dict[str, str]],
) -> None:
    """Half of what a record says would look like all of it."""
    with pytest.raises(UnreadableRecord):
        record({"package": NPM, "ranges": [{"type": "SEMVER", "events": events}]})


def test_a_record_with_very_many_events_is_refused() -> None:
    """Each is compared with each release of the package, whenever its page is asked for."""
    events = [{"introduced": "1.0.0"}, {"fixed": "2.0.0"}]
    ranges = [{"type": "SEMVER", "events": events * 250}]

    assert len(said({"package": NPM, "ranges": ranges * 20}).ranges) == 20
    with pytest.raises(UnreadableRecord, match="more than 10000 events"):
        said({"package": NPM, "ranges": ranges * 21})
