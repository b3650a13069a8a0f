"""The trust rule at the proxy: what the registry says of provenance, and what comes of it."""

from datetime import timedelta
from typing import Any

import pytest

from service.packages.ecosystem import Provenance
from service.packages.npm.document import releases_of
from service.packages.npm.packument import parse_package
from service.packages.proxy.origins import Origins
from tests.package_documents import npm_version, packument
from tests.service.packages.proxy.proxied import OLD, Proxied, wheel_of

ATTESTED = {"attestations": {"url": "https://npm.example/a", "provenance": {"predicateType": "x"}}}
TRUSTED = {"_npmUser": {"name": "bot", "trustedPublisher": {"id": "github"}}}
LATE = timedelta(days=30)


@pytest.mark.parametrize(
    ("said", "dist", "level"),
    [
        ({}, {}, Provenance.NONE),
        ({"_npmUser": {"name": "ada"}}, {"attestations": {}}, Provenance.NONE),
        ({"_npmUser": "ada"}, {"attestations": ["x"]}, Provenance.NONE),
        ({"_npmUser": {"trustedPublisher": None}}, {"attestations": 1}, Provenance.NONE),
        ({}, ATTESTED, Provenance.PROVENANCE),
        (TRUSTED, {}, Provenance.TRUSTED_PUBLISHER),
        (TRUSTED, ATTESTED, Provenance.TRUSTED_PUBLISHER),
    ],
)
def test_what_an_npm_document_says(said: Any, dist: Any, level: Provenance):
    described = npm_version("pad", "1.0.0", "https://npm.example/pad.tgz", b"x", dist, **said)
    body = packument("pad", [described], {"1.0.0": OLD})

    package = parse_package(body, "pad", Origins({"npm": "https://npm.example"}))

    (release,) = releases_of(package)
    assert release.provenance is level
    assert b"trustedPublisher" not in package.versions["1.0.0"].install


async def npm(proxied: Proxied, **policy: Any) -> None:
    """left-pad: 1.0.0 was published by a trusted publisher, and 1.1.0, later, was not."""
    content = b"left-pad"
    path = "/tarballs/left-pad.tgz"
    proxied.registry.says(path, content)
    offered = [
        npm_version("left-pad", version, f"{proxied.registry.url}{path}", content, **said)
        for version, said in (("1.0.0", TRUSTED), ("1.1.0", {}))
    ]
    body = packument("left-pad", offered, {"1.0.0": OLD, "1.1.0": OLD + LATE})
    proxied.registry.says("/npm/left-pad", body, content_type="application/json")
    await proxied.policy(**policy)


def tarball(version: str) -> str:
    return f"npm/left-pad/-/left-pad-{version}.tgz"


async def test_npm_documents_mark_it_and_its_file_is_refused(proxied: Proxied):
    await npm(proxied, trust={})

    document = await proxied.document("left-pad")
    statuses = [(await proxied.get(tarball(version))).status_code for version in ("1.0.0", "1.1.0")]

    assert document["versions"]["1.1.0"]["deprecated"] == (
        "trust downgraded: none, and 1.0.0 had trusted publisher"
    )
    assert document["dist-tags"]["latest"] == "1.0.0"
    assert statuses == [200, 302]
    blocked = (await proxied.rows())[-1]
    assert (blocked["event"], blocked["decision"]) == ("trust_downgraded", "BLOCKED")
    assert blocked["payload"] == {
        "level_before": "trusted_publisher",
        "level_now": "none",
        "version_before": "1.0.0",
        "publisher_before": None,
        "publisher_now": None,
        "verified": False,
    }


async def test_pypi_pages_mark_it_and_its_file_is_refused(proxied: Proxied):
    says = {"provenance": "https://pypi.example/integrity/pad/1.0/provenance"}
    proved, not_proved = wheel_of("pad", "1.0", **says), wheel_of("pad", "1.1", at=OLD + LATE)
    proxied.publishes("pad", proved, not_proved)
    await proxied.policy(trust={})

    files = (await proxied.page("pad"))["files"]
    assert files[0]["yanked"] is False
    assert files[1]["yanked"] == "trust downgraded: none, and 1.0 had provenance"
    for wheel, status in ((proved, 200), (not_proved, 302)):
        path = await proxied.path_of("pad", wheel.filename)
        assert (await proxied.get(path)).status_code == status


async def test_what_is_only_marked_is_served_and_its_row_says_why(proxied: Proxied):
    await npm(proxied, trust={"action": "mark"})

    document = await proxied.document("left-pad")
    served = await proxied.get(tarball("1.1.0"))

    assert "deprecated" not in document["versions"]["1.1.0"]
    assert served.status_code == 200
    (row,) = await proxied.rows()
    assert (row["event"], row["decision"]) == ("install_would_block", "ALLOWED")
    assert row["payload"]["blocked_by"] == "trust_downgraded"
    assert row["payload"]["trust"]["version_before"] == "1.0.0"


async def test_a_file_that_was_served_before_is_not_judged_by_its_successor(proxied: Proxied):
    """What the registry says is about other bytes: nothing is known of the old ones."""
    says = {"provenance": "https://pypi.example/integrity/pad/1.0/provenance"}
    first, second = wheel_of("pad", "1.0", **says), wheel_of("pad", "1.1", at=OLD + LATE)
    proxied.publishes("pad", first, second)
    path = await proxied.path_of("pad", second.filename)
    assert (await proxied.get(path)).status_code == 200
    proxied.publishes("pad", first, wheel_of("pad", "1.1", b"other bytes", at=OLD + LATE))
    await proxied.policy(trust={})
    proxied.clock.advance(days=1)

    files = (await proxied.page("pad"))["files"]

    assert files[1]["yanked"] is False
    assert (await proxied.get(path)).status_code == 200


async def test_the_page_of_a_refusal_shows_both_levels(proxied: Proxied):
    await npm(proxied, trust={})
    refusal = await proxied.get(tarball("1.1.0"))
    address = refusal.headers["location"].partition("//")[2].partition("/")[2]

    page = await proxied.client.get(
        f"/{address}", headers={"accept": "text/html", **proxied.world.session("owner")}
    )

    html = await page.get_data(as_text=True)
    assert page.status_code == 403
    assert "Earlier releases of the package say more" in html
    assert "trusted_publisher" in html
    assert "something else" not in html


async def test_a_check_judges_by_the_document_that_was_fetched(proxied: Proxied):
    await npm(proxied, trust={})
    asked = {"ecosystem": "npm", "package": "left-pad@1.1.0"}
    url = "/api/v1/admin/orgs/acme/policy/check"

    before = await proxied.client.post(url, json=asked, headers=proxied.world.admin)
    await proxied.document("left-pad")
    after = await proxied.client.post(url, json=asked, headers=proxied.world.admin)

    assert (await before.get_json())["event"] == "install_allowed"
    assert (await after.get_json())["event"] == "trust_downgraded"
