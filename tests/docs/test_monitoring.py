"""The rules and the dashboard of docs/monitoring fit the metrics that there are."""

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.app.background_jobs import (
    EXPIRE_INTERVAL_S,
    housekeeping,
    maintenance,
    own_jobs,
    scrubbing,
)
from service.core.settings import REPOSITORY, Settings
from tests.conftest import SCRAPER, SettableClock, World, running_world
from tests.interpreters import find_program

OPERATIONS = REPOSITORY / "docs" / "operations.md"
FOLDER = REPOSITORY / "docs" / "monitoring"
SERIES = re.compile(r"\b(?:countersign|process)_[a-z_]+")


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """Nothing runs in the background: what seals here is the test."""
    async with running_world(settings, clock, has_sealer=False) as quiet:
        yield quiet


def promtool(*arguments: str, given: bytes | None = None) -> str:
    """What promtool prints; it must have no complaint."""
    program = find_program("promtool")
    assert program, "no promtool: run tests/install-programs.sh .venv/bin"
    done = subprocess.run(
        [program, *arguments], cwd=FOLDER, input=given, capture_output=True, check=False
    )
    printed = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, printed
    return printed


async def exposed(world: World) -> str:
    """What `/metrics` prints once something has happened, and all jobs are known."""
    for loop in (maintenance, housekeeping, scrubbing, own_jobs):
        loop(world.services)
    await world.create()
    await world.services.sealer.seal_due(everything=True)
    return await (await world.client.get("/metrics", headers=SCRAPER)).get_data(as_text=True)


def series(text: str) -> set[str]:
    """The names of all series in an exposition, with those of histograms."""
    names = set()
    for _, _, name, kind in (line.split() for line in text.splitlines() if line[:6] == "# TYPE"):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {f"{name}{end}" for end in ends}
    return names


def rules() -> list[dict[str, Any]]:
    """The alerting rules."""
    (group,) = yaml.safe_load((FOLDER / "countersign.rules.yml").read_text())["groups"]
    return list(group["rules"])


def expressions() -> Iterator[str]:
    """Each query of the rules and of the dashboard."""
    yield from (rule["expr"] for rule in rules())
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (
        each["query"]["query"]
        for each in dashboard["templating"]["list"]
        if each["type"] == "query"
    )


async def test_every_metric_that_is_queried_is_there(world: World) -> None:
    """A renamed one would silently end its alerts."""
    queried = {name for expression in expressions() for name in SERIES.findall(expression)}

    assert len(queried) > 20
    assert queried <= series(await exposed(world))


async def test_no_label_is_one_that_prometheus_gives(world: World) -> None:
    """It would rename ours: `job` names the scrape, `instance` its target."""
    labels = set(re.findall(r'[{,](\w+)="', await exposed(world)))

    assert {"task", "process", "tenant"} <= labels
    assert not labels & {"job", "instance"}


async def test_every_job_has_an_interval_for_its_alert(world: World) -> None:
    text = await exposed(world)
    tasks = {
        name: dict(re.findall(rf'^{name}\{{task="(\w+)"\}} (\S+)$', text, re.MULTILINE))
        for name in (
            "countersign_maintenance_interval_seconds",
            "countersign_maintenance_failures_total",
        )
    }
    intervals, failures = tasks.values()

    assert intervals.keys() == failures.keys()
    assert float(intervals["expire_lake"]) == EXPIRE_INTERVAL_S
    assert min(map(float, intervals.values())) > 0


def test_every_alert_has_a_test() -> None:
    tests = yaml.safe_load((FOLDER / "countersign.rules.test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }

    assert fired == {rule["alert"] for rule in rules()}


@pytest.mark.slow
def test_promtool_accepts_the_rules_and_they_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("check", "rules", "countersign.rules.yml")
    assert "SUCCESS" in promtool("test", "rules", "countersign.rules.test.yml")


@pytest.mark.slow
def test_promtool_accepts_the_scrape_of_the_docs(tmp_path: Path) -> None:
    """The token file must exist for promtool, so its path is another."""
    (shown,) = re.findall(r"```yaml\n(rule_files.*?)```", OPERATIONS.read_text(), re.DOTALL)
    token = tmp_path / "token"
    token.write_text("metrics-token\n")
    written = shown.replace("/etc/prometheus/countersign.token", str(token))
    assert str(token) in written
    (tmp_path / "prometheus.yml").write_text(written)
    shutil.copy(FOLDER / "countersign.rules.yml", tmp_path)

    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yml"))


@pytest.mark.slow
async def test_promtool_has_no_complaint_about_the_metrics(world: World) -> None:
    assert promtool("check", "metrics", given=(await exposed(world)).encode()) == ""
