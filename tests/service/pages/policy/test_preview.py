"""The preview: what the policy would have done to the installs of the last 30 days."""

from analytics.model.envelopes import InstallAllowed
from service.audit.refusals import QueryTooSlow
from tests.conftest import World, grant
from tests.service.pages.page import AUDIT, add_install, fails, shown
from tests.service.pages.policy.desk import POLICY, RULE, preview

MAIN = "repo:acme/app:ref:refs/heads/main"
NIGHTLY = "repo:acme/nightly:ref:refs/heads/main"


async def installs(world: World) -> None:
    """Four of left-pad, by two jobs and a person, and one of another package."""
    for subject, version in ((MAIN, "1.0.0"), (MAIN, "1.0.0"), (NIGHTLY, "1.1.0"), (None, "1.0.0")):
        await add_install(
            world,
            InstallAllowed(),
            package_name="left-pad",
            version=version,
            ecosystem="npm",
            subject=subject,
        )
    await add_install(world, package_name="lodash", version="4.0.0", ecosystem="npm")


async def test_it_counts_installs_packages_and_jobs(world: World):
    await installs(world)
    page = await shown(await preview(world, "add_deny", 0, **RULE))

    assert "this would have blocked 4 installs by 2 jobs." in page.html
    assert "5 installs were allowed" in page.html
    assert "1 of the blocked installs have no CI job" in page.html
    assert page.link("left-pad").startswith(f"{AUDIT}?last=30d&decision=ALLOWED&package=left-pad")
    assert "subject=repo%3Aacme%2Fapp" in page.link("acme/app · main")
    assert POLICY in page.forms


async def test_in_audit_mode_it_says_that_they_are_served(world: World):
    await installs(world)
    page = await shown(
        await preview(world, "document", 0, document='{"mode": "audit", "deny": []}')
    )

    assert "blocked 0 installs." in page.html
    assert "would all have been served" in page.html


async def test_an_install_that_is_older_does_not_count(world: World):
    """Thirty days and no more."""
    world.clock.advance(days=-31)
    await installs(world)
    world.clock.advance(days=31)
    page = await shown(await preview(world, "add_deny", 0, **RULE))

    assert "blocked 0 installs." in page.html


async def test_without_the_right_to_read_rows_there_are_counts_alone(world: World):
    await grant(world, "member", "policy:r", "policy:w")
    await installs(world)
    page = await shown(await preview(world, "add_deny", 0, "member", **RULE))

    assert "blocked 4 installs by 2 jobs" in page.html
    assert f"{AUDIT}?" not in page.html


async def test_what_takes_too_long_does_not_prevent_the_change(world: World, monkeypatch):
    """A rule against malware cannot wait for a count."""
    fails(monkeypatch, "count", QueryTooSlow())
    page = await shown(await preview(world, "add_deny", 0, **RULE))

    assert "took too long to count" in page.one("p", role="alert").text
    assert POLICY in page.forms
