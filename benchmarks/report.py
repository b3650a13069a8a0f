"""Generate the tables of docs/benchmarks.md and two other pages, and plots, from stored figures.

`python -m benchmarks.report` rewrites the text between the markers, and the SVG files.
"""

import argparse
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.engines import ENGINES
from benchmarks.fleet.scale import measured
from benchmarks.fleet.tables import quick_note, scale_text, sizing, tables
from benchmarks.plots import Bars, Panel, bars_svg, lines_svg, over_time_svg
from benchmarks.results import CLAIMS, FLEET, LOAD, RESULTS
from benchmarks.tables import BLOCKS, cells, markdown, spelt
from benchmarks.workload import EXPORTS, INGESTS, QUESTIONS, RARE_AT_FIRST, SIZES

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "benchmarks.md"
SCALE: Final = DOCS / "scale.md"
FLEET_PAGE: Final = DOCS / "fleet.md"
BEGIN: Final = "<!-- made by benchmarks/report.py: {} -->"
END: Final = "<!-- end: {} -->"
WIDTH: Final = 120
PLOTTED_PAGES: Final = ("newest", "two filters", "rare package", "absent")
BESIDE: Final = (
    *("direct", "before", "Countersign", "Quart, asyncpg", "devpi", "Verdaccio"),
    *("scfw", "safe-chain"),
)
"""The columns of claims beside a version before, the HTTP peer, other proxies and wrappers."""

PLOTTED_SUMS: Final = ("histogram", "top packages", "top actors")


def all_results(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The stored comparisons, smallest first."""
    paths = [folder / f"{size}.json" for size in SIZES]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def load_runs() -> dict[str, Any]:
    """The stored runs under load, by name."""
    kept: dict[str, Any] = json.loads(LOAD.read_text())
    return {name: run["figures"] for name, run in kept.items()}


def parts(results: list[dict[str, Any]]) -> dict[str, str]:
    """The text between each pair of markers."""
    return {
        "questions": _questions(),
        "setups": _setups(results[-1]),
        "figures": "\n\n".join(map(_figures, reversed(results))),
        "load": "\n\n".join(_load(name, run) for name, run in load_runs().items()),
        **{f"claim: {name}": _claim(run) for name, run in json.loads(CLAIMS.read_text()).items()},
    }


def pages() -> dict[Path, dict[str, str]]:
    """The text between the markers of each page."""
    results = all_results()
    made = {PAGE: parts(results)}
    if FLEET.exists():
        run = json.loads(FLEET.read_text())
        figures = measured(run["figures"], results[-1], json.loads(CLAIMS.read_text()))
        note = quick_note(run)
        taken = _wrapped(f"Taken on {run['taken_on']}: {_machine(run['machine'])}.")
        made[PAGE]["fleet"] = _joined([note, taken, *tables(run)])
        made[SCALE] = {"scale": _joined([note, *map(_wrapped_text, scale_text(figures))])}
        made[FLEET_PAGE] = {"sizing": _joined([note, sizing(figures)])}
    return made


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text)


def _wrapped_text(text: str) -> str:
    return text if text.startswith("|") else _wrapped(text)


def rewritten(page: str, made: dict[str, str]) -> str:
    """`page` with `made` between its markers. Raises ValueError if a marker is missing."""
    for name, text in made.items():
        begin, end = BEGIN.format(name), END.format(name)
        head, found, rest = page.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the page has no place for {name}")
        page = f"{head}{begin}\n\n{text}\n\n{end}{tail}"
    return page


def plots(results: list[dict[str, Any]]) -> dict[str, str]:
    """The SVG files by their names."""
    names = list(ENGINES.values())
    pages = [
        Panel(
            name,
            {label: line for key, label in ENGINES.items() if (line := _line(results, key, name))},
        )
        for name in PLOTTED_PAGES
    ]
    largest = results[-1]["engines"]
    sums = [
        Bars(
            f"{name}, milliseconds (less is better)", _values(largest, "questions", name, "median")
        )
        for name in PLOTTED_SUMS
    ]
    exports = [
        Bars(
            f"{export.name}, rows a second", _values(largest, "exports", export.name, "rows_per_s")
        )
        for export in EXPORTS
    ]
    return {
        "benchmarks-pages.svg": lines_svg(pages, names, "rows of the tenant", "ms"),
        "benchmarks-sums.svg": bars_svg([*sums, *exports], names),
        "benchmarks-soak.svg": over_time_svg(_soak(load_runs()["soak"]), "minutes"),
    }


def _soak(run: dict[str, Any]) -> list[Panel]:
    return [
        Panel(title, {title: [(sample["after_s"] / 60, sample[name]) for sample in run["samples"]]})
        for title, name in (
            ("resident memory, MB", "memory_mb"),
            ("open file descriptors", "descriptors"),
        )
    ]


def _line(results: list[dict[str, Any]], engine: str, name: str) -> list[tuple[float, float]]:
    return [
        (result["tenant_rows"], result["engines"][engine]["questions"][name]["median"])
        for result in results
        if "questions" in result["engines"].get(engine, {})
    ]


def _values(engines: dict[str, Any], kind: str, name: str, figure: str) -> dict[str, float]:
    return {
        label: engines[key][kind][name][figure]
        for key, label in ENGINES.items()
        if kind in engines.get(key, {})
    }


def _questions() -> str:
    lines = ["| name | what is asked, of the largest tenant |", "| --- | --- |"]
    lines += [
        f"| {one.name} | {one.asks} |" for one in (*QUESTIONS, RARE_AT_FIRST, *EXPORTS, *INGESTS)
    ]
    return "\n".join(lines)


def _setups(figures: dict[str, Any]) -> str:
    return "\n".join(
        _wrapped(f"- **{label}**: {figures['engines'][name]['setup']}.", "  ")
        for name, label in ENGINES.items()
        if "setup" in figures["engines"].get(name, {})
    )


def _figures(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    engines = figures["engines"]
    said = (
        f"Taken on {figures['taken_on']}: {_machine(machine)}; "
        + "; ".join(engines[name]["version"] for name in ENGINES if "version" in engines[name])
        + "."
    )
    missing = [
        f"{ENGINES[name]} was {one['not_run']}."
        for name, one in engines.items()
        if "not_run" in one
    ]
    head = (
        f"### {spelt(figures['rows'] / 1e6)} million rows, {spelt(figures['tenant_rows'] / 1e6)}"
        " million of the tenant"
    )
    tables = [markdown(figures, block) for block in BLOCKS if any(cells(figures, block))]
    return "\n\n".join([head, _wrapped(" ".join([said, *missing])), *tables])


def _machine(machine: dict[str, str]) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory']},"
        f" {machine['system']}, Linux {machine['kernel']}, Python {machine['python']}"
    )


def _load(name: str, run: dict[str, Any]) -> str:
    first, last = run["samples"][0], run["samples"][-1]
    errors = run["errors"] or "none"
    paced = f", paced at {run['asked_per_s']:g} requests/s" if run["asked_per_s"] else ""
    said = (
        f"{run['clients']} clients for {run['seconds']:,.0f} s{paced}, on {run['rows'] / 1e6:g}"
        f" million rows. Errors: {errors}. {run['rows_sent']:,} rows were sent, and all are there."
        f" Memory {first['memory_mb']:,.0f} MB at the start and {last['memory_mb']:,.0f} at the end"
        f" (peak {run['memory_peak_mb']:,.0f}), open file descriptors {first['descriptors']} and"
        f" {last['descriptors']}."
    )
    lines = [
        "| | requests | a second | median | 99th percentile | longest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {kind} | {one['requests']:,} | {one['per_s']:,g} | {one['p50_ms']:,g} ms"
        f" | {one['p99_ms']:,g} ms | {one['max_ms']:,g} ms |"
        for kind, one in run["kinds"].items()
    ]
    return "\n\n".join([f"### {name.capitalize()}", _wrapped(said), "\n".join(lines)])


def _claim(run: dict[str, Any]) -> str:
    if any(isinstance(figure, dict) for figure in run["figures"].values()):
        return _beside_each_other(run)
    lines = ["| | measured | estimated before |", "| --- | --- | --- |"]
    for name, figure in run["figures"].items():
        what, _, unit = name.rpartition(", ")
        expected = run["estimated"].get(name)
        lines.append(
            f"| {what} | {_with_unit(figure, unit)}"
            f" | {'' if expected is None else _with_unit(expected, unit)} |"
        )
    return "\n".join(lines)


def _beside_each_other(run: dict[str, Any]) -> str:
    """A claim whose figures are by engine: a column for each, and what ours should reach."""
    columns = [name for name in BESIDE if any(name in figure for figure in run["figures"].values())]
    lines = [
        f"| | {' | '.join(columns)} | ours should reach |",
        f"| {'--- | ' * (len(columns) + 2)}".rstrip(),
    ]
    for name, by_column in run["figures"].items():
        what, _, unit = name.rpartition(", ")
        expected = run["estimated"].get(name)
        shown = [
            _with_unit(by_column[column], unit) if column in by_column else "" for column in columns
        ]
        goal = "" if expected is None else _with_unit(expected, unit)
        lines.append(f"| {' | '.join([what, *shown, goal])} |")
    return "\n".join(lines)


def _with_unit(figure: float, unit: str) -> str:
    match unit:
        case "rows":
            return f"{figure:,.0f} rows"
        case "rows/s":
            return f"{spelt(figure / 1000)} thousand rows/s"
        case "us":
            return f"{spelt(figure)} µs"
        case "ratio":
            return spelt(figure)
    return f"{spelt(figure)} {unit}"


def _wrapped(text: str, indent: str = "") -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False))


def main() -> None:
    """Rewrite the pages and their plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=DOCS, help="where they are written")
    folder = parser.parse_args().folder
    for page, made in pages().items():
        (folder / page.name).write_text(rewritten(page.read_text(), made))
    for name, svg in plots(all_results()).items():
        (folder / name).write_text(svg)


if __name__ == "__main__":
    main()
