"""A round reads the rules and rows of the organisations that have something new, and no others."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from analytics.model.errors import StoreFault
from service.app.composition import build_services
from service.audit.alerts import watcher
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.alerts.watching import ALERTS, BLOCKED, RULES, ask, create, fired

SILENT = {"kind": "silence", "window": "1h", "at_least": 1}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The organisations whose log a round has opened."""
    slugs: list[str] = []
    open_log = watcher.open_log

    async def noted(*arguments: Any) -> Any:
        slugs.append(arguments[2].slug)
        return await open_log(*arguments)

    monkeypatch.setattr(watcher, "open_log", noted)
    return slugs


async def other_rule(audit, **changes: Any) -> None:
    response = await audit.world.client.post(
        RULES.replace("acme", "other"), headers=audit.world.admin, json=BLOCKED | changes
    )
    assert response.status_code == 201


async def test_only_organisations_with_new_rows_are_looked_at(audit, opened):
    await create(audit, at_least=1)
    await other_rule(audit)
    await fired(audit)
    opened.clear()

    await audit.accept([sample_row(START)], audit.world.other)
    await audit.services.alerts.watch_due()
    audit.clock.advance(minutes=1)
    await audit.services.alerts.watch_due()
    assert opened == ["other"]

    await audit.accept([sample_row(audit.clock.now)])
    await audit.seal()  # before the round: the journal does not tell of it

    assert len(await fired(audit)) == 1
    assert opened == ["other", "acme"]


@pytest.mark.parametrize(("news_max", "are_counted"), [(100, 1), (1, 2)])
async def test_a_rule_of_which_no_row_is_new_is_not_counted(
    audit, monkeypatch, news_max, are_counted
):
    """Most rules have no row in most rounds. Of more rows than that, counts tell."""
    counted, count = [], watcher.count

    async def noted(*arguments: Any) -> Any:
        counted.append(arguments[2].name)
        return await count(*arguments)

    monkeypatch.setattr(watcher, "count", noted)
    monkeypatch.setattr(watcher, "NEWS_MAX", news_max)
    await create(audit, at_least=2)
    await create(audit, name="Other", query="decision=BLOCKED&package=!left-pad")
    await audit.accept([sample_row(START, package_name="left-pad") for _ in range(2)])

    assert len(await fired(audit)) == 1
    assert sorted(counted) == ["Blocked", "Other"][:are_counted]


async def test_others_have_their_turn_between_two_rules(audit, monkeypatch):
    """Of an organisation's hundred rules none may be of new rows: then no query gives them one."""
    turns, turn_of_rule, mask = itertools.count(), [], watcher.mask

    def noted(*arguments: Any) -> Any:
        turn_of_rule.append(next(turns))
        return mask(*arguments)

    async def others() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    monkeypatch.setattr(watcher, "mask", noted)
    for number in range(3):
        await create(audit, name=f"No row {number}", query="package=none")
    await audit.accept([sample_row(START, package_name="left-pad")])
    running = asyncio.create_task(others())
    await audit.services.alerts.watch_due()
    running.cancel()

    first, second, third = turn_of_rule
    assert first + 1 < second < third - 1


async def test_silences_are_evaluated_once_an_hour(audit, opened):
    await create(audit, **SILENT)
    await fired(audit)
    opened.clear()
    for _ in range(12):
        audit.clock.advance(minutes=10)
        await audit.services.alerts.watch_due()
    assert opened == ["acme"] * 2


async def test_a_process_that_starts_goes_on_where_the_last_one_stood(audit, opened):
    """It need not count the day before of every organisation."""
    await create(audit, at_least=1)
    await other_rule(audit)
    for _ in range(2):
        await audit.services.alerts.watch_due()
        audit.clock.advance(minutes=6)
    await audit.services.alerts.watch_due()
    opened.clear()
    await audit.accept([sample_row(audit.clock.now)])

    services = build_services(audit.services.settings, audit.clock)
    try:
        await services.alerts.watch_due()
    finally:
        await services.close()

    assert opened == ["acme"]
    assert len((await ask(audit, "get", ALERTS))["alerts"]) == 1


async def test_rows_before_a_long_pause_are_counted(audit):
    """Of a process that was killed before it counted them; then they are no history."""
    await create(audit, at_least=1)
    await audit.services.alerts.watch_due()
    audit.clock.advance(minutes=1)
    await audit.accept([sample_row(audit.clock.now)])
    await audit.seal()
    audit.clock.advance(days=3)

    services = build_services(audit.services.settings, audit.clock)
    try:
        await services.alerts.watch_due()
    finally:
        await services.close()

    assert len((await ask(audit, "get", ALERTS))["alerts"]) == 1


async def test_rows_that_could_not_be_counted_are_counted_later(audit, opened, monkeypatch):
    """Whatever else is new by then; and what does not count fires no more than before."""
    await create(audit, at_least=1)
    for kind in ("integrity", "seal", "clock"):
        await create(audit, name=kind, kind=kind, query="", at_least=1)
    await audit.services.alerts.watch_due()
    await audit.accept([sample_row(START)])
    with monkeypatch.context() as patched:

        async def damaged(*_: Any) -> Any:
            raise StoreFault("damaged")

        patched.setattr(watcher, "count", damaged)
        for _ in range(3):
            audit.clock.advance(minutes=6)
            with pytest.raises(StoreFault):
                await audit.services.alerts.watch_due()

    (alert,) = await fired(audit)
    assert alert["rows"] == 1
