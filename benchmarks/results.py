"""Stored figures: JSON files in benchmarks/results, from which docs/benchmarks.md is generated."""

import json
import os
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import machine

RESULTS: Final = Path(os.environ.get("BENCHMARKS_RESULTS") or Path(__file__).parent / "results")
CLAIMS: Final = RESULTS / "claims.json"
LOAD: Final = RESULTS / "load.json"
FLEET: Final = RESULTS / "fleet.json"


def record(
    name: str,
    figures: dict[str, Any],
    path: Path = CLAIMS,
    estimated: dict[str, float] | None = None,
) -> None:
    """Store the figures of the benchmark `name`, with the machine it ran on.

    The name of a figure ends with its unit: "create among 10, ms". A figure that several engines
    have is an object by their names. `estimated` are the estimates made before the first run, by
    the same names.
    """
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept[name] = {"machine": machine(), "figures": figures, "estimated": estimated or {}}
    write(path, kept)


def write(path: Path, content: dict[str, Any]) -> None:
    """Write `content` to `path`, in a form that differs only where figures do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(content), indent=1, sort_keys=True) + "\n")


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Round figures to four digits, which is their precision."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {str(name): _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return value
