"""A Sigma rule means the same rows to engines that were not written here."""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from service.audit.alerts.rules import parse_rule
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START
from tests.engines.engines import FOLDER, SCRIPTS, Engine
from tests.polling import HANG_S
from tests.receivers.programs import tenzir

RULE = "title: t\nlogsource: {product: countersign}\ndetection:\n"
RULES = [
    "  selection: {decision: BLOCKED}\n  condition: selection",
    "  selection: {decision: BLOCKED, actor: [key_a, key_b]}\n  condition: selection",
    "  selection:\n    packageName|startswith: [left-, right-]\n  condition: selection",
    "  selection: {decision: BLOCKED}\n  other: {actor: key_a}\n"
    "  condition: selection and not other",
    "  one: {actor: key_a}\n  two: {event: blocklist_hit}\n  condition: one and two",
    "  one: {actor: key_a}\n  two: {actor: key_c}\n  condition: one or two",
    "  one: {actor: [key_a, key_b]}\n  two: {version: 1.0.0}\n  condition: one and not two",
]


def rule_id(number: int) -> str:
    return f"11111111-1111-4111-8111-{number:012}"


async def by_duckdb(audit, texts: list[str], folder: Path) -> list[list[str]]:
    """The rows of each rule, as the backend for DuckDB selects them of the exported file."""
    Engine("sigma").require()
    exported = await audit.export(format="csv")
    file = folder / "rows.csv"
    file.write_bytes(await exported.get_data())
    command = [FOLDER / "sigma" / "bin" / "python", SCRIPTS / "ask_sigma.py", file]
    return json.loads(await asyncio.to_thread(said, command, json.dumps(texts)))


async def by_tenzir(audit, texts: list[str], folder: Path) -> list[list[str]]:
    """The same of Tenzir's own engine for Sigma, which reads all rules at once."""
    program = tenzir()
    exported = await audit.export(format="ndjson")
    (folder / "rows.json").write_bytes(await exported.get_data())
    (folder / "rules").mkdir()
    for number, text in enumerate(texts):
        (folder / "rules" / f"{number}.yml").write_text(f"id: {rule_id(number)}\n{text}")
    query = f"""
        from_file "{folder}/rows.json" {{ read_ndjson }}
        sigma path="{folder}/rules"
        select rule=policy.uid, row=evidences[0].data.id
        write_ndjson
    """
    lines = (await asyncio.to_thread(said, [program, query])).splitlines()
    found = [json.loads(line) for line in lines]
    return [
        sorted(each["row"] for each in found if each["rule"] == rule_id(number))
        for number in range(len(texts))
    ]


def said(command: Sequence[str | Path], given: str = "") -> str:
    return subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=HANG_S, check=True
    ).stdout


@only_full
@pytest.mark.slow
@pytest.mark.parametrize("judged", [by_duckdb, by_tenzir])
async def test_a_rule_has_the_rows_that_others_select(audit, tmp_path, judged):
    values = product(
        ("key_a", "key_b", "key_c"),
        ("left-pad", "right-pad", "pad"),
        ("BLOCKED", "ALLOWED"),
        ("1.0.0", "1.1.0"),  # Tenzir reads '1.0' in a rule as a number
    )
    await audit.accept(
        [
            sample_row(
                START,
                actor=actor,
                package_name=package,
                decision=decision,
                version=version,
                event="blocklist_hit" if decision == "BLOCKED" else "install_allowed",
            )
            for actor, package, decision, version in values
        ]
    )
    texts = [RULE + text for text in RULES]
    judgements = await judged(audit, texts, tmp_path)

    for text, ids in zip(texts, judgements, strict=True):
        query = parse_rule({"name": "x", "sigma": text}).query
        found = await audit.get(f"?limit=1000&{query}")
        rows = (await found.get_json())["entries"]
        assert sorted(row["id"] for row in rows) == ids, text
        assert ids
