"""An install whose file was on its way while what is in force changed is decided by what is new.

Otherwise its row would be committed after past installs were compared, and no match would have it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from service.core.settings import Settings
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records
from tests.service.packages.proxy.proxied import (
    Proxied,
    deny,
    running_proxy,
    shown,
    wheel_of,
)
from tests.service.packages.proxy.registry import Asked, head, running_registry
from tests.service.packages.retro.test_matcher import matched

CONTENT = b"evil 1.0.0"
TARBALL = "/tarballs/evil/1.0.0.tgz"
WHEEL = "/files/evil-1.0.0-py3-none-any.whl"


@pytest.fixture
async def proxied(settings: Settings) -> AsyncIterator[Proxied]:
    async with running_registry() as registry, running_proxy(settings, registry) as running:
        running.publishes_npm("evil", "1.0.0", content=CONTENT)
        running.publishes("evil", wheel_of("evil", "1.0.0", CONTENT))
        yield running


def happens_before(
    proxied: Proxied, path: str, change: Callable[[], Awaitable[None]], times: int = 1
) -> None:
    """Have the registry send the file at `path` only once `change` is made and compared."""
    changes = iter([change] * times)

    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        for due in changes:
            await due()
            await matched(proxied.world)
            break
        writer.write(head(content_length=str(len(CONTENT))) + CONTENT)

    proxied.registry.does(path, answer)


async def imported(proxied: Proxied) -> None:
    records = (osv_record("MAL-1"), osv_record("MAL-2", ecosystem="PyPI"))
    await import_records(proxied.world, *records)


async def denied(proxied: Proxied) -> None:
    rules = [deny(ecosystem, "evil", id=f"no-{ecosystem}") for ecosystem in ("npm", "pypi")]
    await proxied.policy(deny=rules)


@pytest.mark.parametrize("change", [imported, denied])
@pytest.mark.parametrize(
    ("ecosystem", "path"), [("npm", TARBALL), ("pypi", WHEEL)], ids=["npm", "pypi"]
)
async def test_it_is_refused_by_what_came_meanwhile(
    proxied: Proxied, change: Callable[[Proxied], Awaitable[None]], ecosystem: str, path: str
) -> None:
    happens_before(proxied, path, lambda: change(proxied))
    url = await proxied.path_of("evil") if ecosystem == "pypi" else "npm/evil/-/evil-1.0.0.tgz"

    answered = await proxied.get(url)

    assert answered.status_code != 200
    assert await proxied.events() == ["blocklist_hit"]
    assert await matched(proxied.world) == {}


async def test_what_is_allowed_still_is_served_by_what_is_new(proxied: Proxied) -> None:
    async def change() -> None:
        await import_records(proxied.world, osv_record("MAL-1", "other"))

    happens_before(proxied, TARBALL, change)

    answered = await proxied.get("npm/evil/-/evil-1.0.0.tgz")

    assert (answered.status_code, await answered.get_data()) == (200, CONTENT)
    (row,) = await proxied.rows()
    assert row["payload"]["admission"]["blocklist_generation"] == 1


async def test_a_policy_that_keeps_changing_is_told(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package manager tries again after a 503."""
    record = proxied.world.services.proxy.installs.record
    revisions = 0

    async def overtaken(_: object, *arguments: object) -> object:
        nonlocal revisions
        revisions += 1
        await proxied.policy(deny=[deny("npm", f"other-{revisions}")])
        return await record(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(proxied.world.services.proxy.installs), "record", overtaken)
    answered = await proxied.get("npm/evil/-/evil-1.0.0.tgz")

    status, text = await shown(answered)
    assert (status, revisions) == (503, 3)
    assert "changed while the install was decided" in text
    assert await proxied.rows() == []
