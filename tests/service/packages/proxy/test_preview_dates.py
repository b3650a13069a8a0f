"""Which past installs a cooldown would have blocked, by the dates that the proxy knows."""

from datetime import timedelta
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import InstallAllowed
from analytics.model.rows import audit_row
from service.app.composition import Services, build_services
from service.audit.tenant_log import open_log
from service.packages.policy import preview as limits
from service.packages.policy.document import parse_policy
from service.packages.policy.preview import Preview, preview_policy
from service.packages.proxy.registries import ListedReleases
from tests.conftest import BY_OPERATOR
from tests.service.packages.proxy.proxied import OLD, Proxied, wheel_of

NPM, PYPI = Ecosystem.NPM, Ecosystem.PYPI
WEEK = {"cooldown": {"min_age_days": 7}}


async def install(
    proxied: Proxied, ecosystem: Ecosystem, name: str, version: str, subject: str | None = None
) -> None:
    async with proxied.world.services.store.write() as work:
        row = audit_row(
            InstallAllowed(),
            BY_OPERATOR,
            work.now,
            subject=subject,
            package_name=name,
            version=version,
            ecosystem=ecosystem,
        )
        work.journal.add(proxied.world.acme.id, [row])


async def previewed(
    proxied: Proxied, document: Any = WEEK, services: Services | None = None
) -> Preview:
    """What this policy would have done."""
    services, now = services or proxied.world.services, proxied.clock.now
    log = await open_log(services.store, services.lake, proxied.world.acme, now)
    policy = parse_policy(document)
    listings = ListedReleases(services.proxy.registries, services.proxy.artifacts)
    return await preview_policy(log, policy, listings, services.worker, now, 10.0)


async def test_installs_of_young_releases_are_counted(proxied: Proxied) -> None:
    start = proxied.clock.now
    proxied.publishes_npm("new", "1.0.0", "2.0.0", at={"1.0.0": OLD, "2.0.0": start})
    await proxied.document("new")
    for subject in ("repo:a", "repo:a", "repo:b", None):
        await install(proxied, NPM, "new", "2.0.0", subject)
    await install(proxied, NPM, "new", "1.0.0", "repo:c")

    first = await previewed(proxied)
    proxied.clock.advance(days=8)
    await install(proxied, NPM, "new", "2.0.0", "repo:d")
    second = await previewed(proxied)

    for preview in (first, second):
        assert (preview.blocked, preview.unattributed, preview.undated) == (4, 1, 0)
        assert dict(preview.jobs) == {"repo:a": 2, "repo:b": 1}
        assert dict(preview.packages) == {("npm", "new"): 4}
        assert dict(preview.rules) == {"cooldown": 4}
    assert (first.installs, second.installs) == (5, 6)


async def test_what_the_cooldown_blocks_might_be_the_cure(proxied: Proxied) -> None:
    """The preview leaves the blocklist out, without which nothing is the cure."""
    proxied.publishes_npm("new", "1.0.0", at={"1.0.0": proxied.clock.now})
    await proxied.document("new")
    await install(proxied, NPM, "new", "1.0.0")

    found = [
        await previewed(proxied, {"cooldown": {**WEEK["cooldown"], "cure": cure}})
        for cure in (False, True)
    ]

    assert [(each.blocked, each.maybe_cured) for each in found] == [(1, 0), (1, 1)]


async def test_an_install_at_exactly_the_age_is_not_blocked(proxied: Proxied) -> None:
    start = proxied.clock.now
    proxied.publishes_npm("new", "1.0.0", at={"1.0.0": start - timedelta(days=7)})
    await proxied.document("new")

    await install(proxied, NPM, "new", "1.0.0")

    assert (await previewed(proxied)).blocked == 0


async def test_a_python_release_is_as_old_as_its_first_file(proxied: Proxied) -> None:
    """A file that was added today does not make the release new; spellings do not matter."""
    start = proxied.clock.now
    first, late = wheel_of("flask-login", "1.0", at=OLD), wheel_of("flask-login", "1.0.0", at=start)
    proxied.publishes("flask-login", late, first, wheel_of("flask-login", "2.0", at=start))
    await proxied.page("flask-login")

    await install(proxied, PYPI, "Flask_Login", "1.0.0")
    await install(proxied, PYPI, "flask-login", "2.0.0")

    preview = await previewed(proxied)
    assert (preview.blocked, preview.undated) == (1, 0)


async def test_what_is_not_known_is_undated(proxied: Proxied) -> None:
    """No registry is asked: the preview of a month must not fetch thousands of documents."""
    proxied.publishes("asked", wheel_of("asked", "1.0", at=None))
    proxied.publishes("never", wheel_of("never", "1.0"))
    await proxied.page("asked")
    asked = len(proxied.registry.asked)
    for name, version in (("asked", "1.0"), ("asked", "9.9"), ("asked", "x!"), ("never", "1.0")):
        await install(proxied, PYPI, name, version)

    preview = await previewed(proxied)

    assert (preview.blocked, preview.undated) == (0, 4)
    assert len(proxied.registry.asked) == asked


async def test_a_document_of_any_age_on_disk_is_read(proxied: Proxied) -> None:
    """The command reads the folder that the service has filled."""
    proxied.publishes("old", wheel_of("old", "1.0", at=proxied.clock.now))
    await proxied.page("old")
    await install(proxied, PYPI, "old", "1.0")
    proxied.clock.advance(days=20)
    services = build_services(proxied.world.services.settings, proxied.clock)
    try:
        preview = await previewed(proxied, services=services)
    finally:
        await services.close()

    assert (preview.blocked, preview.undated) == (1, 0)


async def test_allow_and_exempt_hold_for_past_installs(proxied: Proxied) -> None:
    young = dict.fromkeys(("1.0.0", "1.1.0"), proxied.clock.now)
    proxied.publishes_npm("new", *young, at=young)
    await proxied.document("new")
    for version in young:
        await install(proxied, NPM, "new", version)
    allow = {"ecosystem": "npm", "package": "new", "versions": "1.0.0"}
    exempt = {"min_age_days": 7, "exempt": [{"ecosystem": "npm", "package": "new"}]}

    assert (await previewed(proxied)).blocked == 2
    assert (await previewed(proxied, {**WEEK, "allow": [allow]})).blocked == 1
    assert (await previewed(proxied, {"cooldown": exempt})).blocked == 0


async def test_a_name_with_a_filters_characters_is_taken_literally(proxied: Proxied) -> None:
    """Old names of npm have `!` and `*`, which negate and abbreviate in filters."""
    for name in ("!a", "b*", "bc"):
        await install(proxied, NPM, name, "1.0.0", f"repo:{name}")
    deny = [{"ecosystem": "npm", "package": "!a"}, {"ecosystem": "npm", "package": "b*"}]

    preview = await previewed(proxied, {"deny": deny})

    assert set(preview.jobs) == {"repo:!a", "repo:b*", "repo:bc"}


async def test_a_preview_that_takes_too_long_counts_what_it_has_judged(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of ranges on every package must not keep a worker busy for minutes."""
    await install(proxied, NPM, "left-pad", "1.0.0")
    monkeypatch.setattr(limits, "STEPS_MAX", 0)

    preview = await previewed(proxied)

    assert (preview.installs, preview.is_complete, preview.undated) == (1, False, 0)
