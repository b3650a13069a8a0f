"""The figures of a fleet as tables for the docs."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.fleet.scale import (
    FLEET,
    Measured,
    Use,
    files_of,
    limits,
    pages_per_s,
    sizes,
    spelt_size,
)
from benchmarks.tables import spelt

TITLES: Final = {
    "databases": "page over HTTP",
    "warm": "warm page over HTTP, median",
    "cold": "first page of a new process, empty cache",
    "processor": "page while another node writes",
    "ingest": "durable ingest",
    "publication": "open tables",
}
GOALS: Final = {
    "databases": "Goal: at PostgreSQL at most 1 ms more than at SQLite.",
    "warm": "Goal: on S3 at most 1.2 times the folder's.",
}
CORES: Final = 2
"""Of each node, in what is computed."""

SIZED: Final = (
    Use(nodes=2, tenants=20, rows=100_000_000, days=365, busy=10, batch_rows=100),
    Use(nodes=3, tenants=200, rows=1_000_000_000, days=365, busy=10, batch_rows=100),
    FLEET,
)
"""The installations in the sizing table of docs/fleet.md."""


def quick_note(run: Mapping[str, Any]) -> str:
    """What a reader has to know of figures that were not taken for them; "" if they were."""
    if not run["is_quick"]:
        return ""
    return (
        "**These figures are of a quick run on a busy machine. They show that the benchmark works;"
        " do not use them.**"
    )


def tables(run: Mapping[str, Any]) -> list[str]:
    """A table for each part of the run, with its goal."""
    return [
        "\n\n".join(filter(None, [_table(title, run["figures"][name]), GOALS.get(name, "")]))
        for name, title in TITLES.items()
    ]


def _table(title: str, figures: Mapping[str, Mapping[str, float]]) -> str:
    columns = list(dict.fromkeys(column for each in figures.values() for column in each))
    lines = [f"| {title} | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for name, each in figures.items():
        cells = [spelt(each[column]) if column in each else "–" for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def scale_text(figures: Measured, use: Use = FLEET) -> list[str]:
    """The parts of docs/scale.md: the use, its limits, the first of them, and sizes."""
    found = limits(use, figures)
    first = found[0]
    verdict = "is beyond" if first.share > 1 else "is the nearest to"
    rows = [
        "| limit | formula | needed | available | used |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {line.name} | {line.formula} | {spelt_size(line.needed)} {line.unit}"
        f" | {spelt_size(line.available)} {line.unit} | {spelt_size(line.share * 100)} % |"
        for line in found
    ]
    stored = ["| what | size |", "| --- | --- |"]
    stored += [
        f"| {name.rpartition(', ')[0]} | {spelt_size(value)} {name.rpartition(', ')[2]} |"
        for name, value in sizes(use, figures).items()
    ]
    pages = pages_per_s(use, figures, CORES)
    return [
        f"The installation: {use.nodes} nodes of {CORES} cores, {use.tenants:,} tenants,"
        f" {use.rows:,} rows over {use.days} days, spread evenly; the busiest hour has"
        f" {use.busy:g} times the mean, {spelt_size(use.busy_rows_per_s)} rows/s.",
        f"**The first limit: {first.name}**, which {verdict} what one database can do:"
        f" {spelt_size(first.share * 100)} % of it.",
        "\n".join(rows),
        f"Pages are no limit: {use.nodes} nodes × {CORES} cores ÷ {spelt(figures.page_cpu_ms)} ms"
        f" of processor time = {spelt_size(pages)} newest pages a second.",
        "\n".join(stored),
    ]


def sizing(figures: Measured) -> str:
    """The table of docs/fleet.md."""
    lines = [
        "| rows in a year | tenants | nodes | files | catalog | segments | busiest hour"
        " | first limit, used |",
        f"|{' --- |' * 8}",
    ]
    for use in SIZED:
        stored = sizes(use, figures)
        first = limits(use, figures)[0]
        lines.append(
            f"| {use.rows:,} | {use.tenants:,} | {use.nodes} | {files_of(use):,}"
            f" | {spelt_size(stored['catalog in the database, GB'])} GB"
            f" | {spelt_size(stored['segments on S3, GB'])} GB"
            f" | {spelt_size(use.busy_rows_per_s)} rows/s"
            f" | {first.name}: {spelt_size(first.share * 100)} % |"
        )
    return "\n".join(lines)
