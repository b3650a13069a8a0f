"""A Sigma rule means the same rows to a backend that was not written here."""

import asyncio
import json
import subprocess
from itertools import product

import pytest

from service.audit.alerts.rules import parse_rule
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START
from tests.engines.engines import FOLDER, SCRIPTS, Engine
from tests.polling import HANG_S

RULE = "title: t\nlogsource: {product: countersign}\ndetection:\n"
RULES = [
    "  selection: {decision: BLOCKED}\n  condition: selection",
    "  selection: {decision: BLOCKED, actor: [key_a, key_b]}\n  condition: selection",
    "  selection:\n    packageName|startswith: [left-, right-]\n  condition: selection",
    "  selection: {decision: BLOCKED}\n  other: {actor: key_a}\n"
    "  condition: selection and not other",
    "  one: {actor: key_a}\n  two: {event: blocklist_hit}\n  condition: one and two",
    "  one: {actor: key_a}\n  two: {actor: key_c}\n  condition: one or two",
    "  one: {actor: [key_a, key_b]}\n  two: {version: '1.0'}\n  condition: one and not two",
]


@only_full
@pytest.mark.slow
async def test_a_rule_has_the_rows_that_the_backend_for_duckdb_has(audit, tmp_path):
    Engine("sigma").require()
    values = product(
        ("key_a", "key_b", "key_c"),
        ("left-pad", "right-pad", "pad"),
        ("BLOCKED", "ALLOWED"),
        ("1.0", "1.1"),
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
    exported = await audit.export(format="csv")
    file = tmp_path / "rows.csv"
    file.write_bytes(await exported.get_data())
    texts = [RULE + text for text in RULES]
    asked = await asyncio.to_thread(
        subprocess.run,
        [FOLDER / "sigma" / "bin" / "python", SCRIPTS / "ask_sigma.py", file],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )

    for text, ids in zip(texts, json.loads(asked.stdout), strict=True):
        query = parse_rule({"name": "x", "sigma": text}).query
        found = await audit.get(f"?limit=1000&{query}")
        rows = (await found.get_json())["entries"]
        assert sorted(row["id"] for row in rows) == ids, text
        assert ids
