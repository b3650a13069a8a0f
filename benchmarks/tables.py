"""The figures of a comparison as tables, with ratios: for the terminal and for the docs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.engines import ENGINES
from benchmarks.measure import OURS
from benchmarks.workload import (
    AFTER_RESTART,
    EXPORTS,
    INGESTS,
    QUESTIONS,
    RARE_AT_FIRST,
    WEB_QUESTIONS,
)

NONE: Final = "–"


@dataclass(frozen=True)
class Line:
    """One figure of every engine: where to find it, and how to format it."""

    name: str
    figure: Callable[[dict[str, Any]], float]
    more_is_better: bool = False


@dataclass(frozen=True)
class Block:
    """Lines with the same unit."""

    title: str
    lines: Sequence[Line]


def _at(*keys: str) -> Callable[[dict[str, Any]], float]:
    def figure(engine: dict[str, Any]) -> float:
        found: Any = engine
        for key in keys:
            found = found[key]
        return float(found)

    return figure


def _thousands(*keys: str) -> Callable[[dict[str, Any]], float]:
    return lambda engine: _at(*keys)(engine) / 1000


BLOCKS: Final = (
    Block(
        "questions, milliseconds",
        [
            Line(question.name, _at("questions", question.name, "median"))
            for question in (*QUESTIONS, RARE_AT_FIRST)
        ],
    ),
    Block(
        "first query after a restart, milliseconds",
        [Line(name, _at("after_restart", name)) for name in AFTER_RESTART],
    ),
    Block(
        "page over HTTP, milliseconds",
        [
            Line(f"{name}, {label}", _at("web", name, key))
            for name in WEB_QUESTIONS
            for key, label in (("p50", "median"), ("p99", "p99"))
        ],
    ),
    Block(
        "export, thousand rows/s",
        [
            Line(export.name, _thousands("exports", export.name, "rows_per_s"), True)
            for export in EXPORTS
        ],
    ),
    Block(
        "durable ingest, rows/s",
        [Line(ingest.name, _at("ingest", ingest.name, "rows_per_s"), True) for ingest in INGESTS],
    ),
    Block(
        "keeping",
        [
            Line("load, thousand rows/s", _thousands("load", "rows_per_s"), True),
            Line("bytes on disk a row", _at("load", "bytes_a_row")),
            Line("prune a day, ms", _at("prune_ms", "median")),
            Line("peak memory, MB", _at("peak_mb")),
        ],
    ),
)


def cells(figures: dict[str, Any], block: Block) -> Iterator[list[str]]:
    """A line of text cells for each line of `block` that any engine has a figure for.

    A peer's figure is followed by the ratio to ours: above 1, ours is better.
    """
    for line in block.lines:
        found = [_figure(figures["engines"].get(name, {}), line) for name in ENGINES]
        ours = found[list(ENGINES).index(OURS)]
        if any(one is not None for one in found):
            yield [
                line.name,
                *(
                    _cell(one, None if name == OURS else ours, line)
                    for name, one in zip(ENGINES, found, strict=True)
                ),
            ]


def _figure(engine: dict[str, Any], line: Line) -> float | None:
    try:
        return line.figure(engine)
    except KeyError:
        return None


def _cell(figure: float | None, ours: float | None, line: Line) -> str:
    if figure is None:
        return NONE
    if ours is None:
        return spelt(figure)
    ratio = ours / figure if line.more_is_better else figure / ours
    return f"{spelt(figure)} ({spelt(ratio)})"


def spelt(figure: float) -> str:
    """Two or three significant digits."""
    if figure >= 100:
        return f"{float(f'{figure:.3g}'):,.0f}"
    if figure >= 10:
        return f"{figure:.1f}".removesuffix(".0")
    return f"{figure:.2g}" if figure < 1 else f"{figure:.2f}"


def text_tables(figures: dict[str, Any]) -> str:
    """All tables for a terminal, including the spread of the questions."""
    lines = [f"{figures['rows']:,} rows, {figures['tenant_rows']:,} of the largest tenant"]
    lines += [", ".join(f"{name} {value}" for name, value in figures["machine"].items())]
    for name, engine in figures["engines"].items():
        lines.append(f"  {ENGINES[name]}: {engine.get('version') or engine['not_run']}")
    lines.append("(in brackets: how many times as good ours is)")
    for block in BLOCKS:
        lines += ["", f"{block.title:<28}" + "".join(f"{name:>20}" for name in ENGINES.values())]
        lines += [
            f"{row[0]:<28}" + "".join(f"{cell:>20}" for cell in row[1:])
            for row in cells(figures, block)
        ]
    lines += [
        "",
        f"{'p10 to p90, milliseconds':<28}" + "".join(f"{name:>20}" for name in ENGINES.values()),
    ]
    for question in QUESTIONS:
        spread = [_spread(figures["engines"].get(name, {}), question.name) for name in ENGINES]
        lines.append(f"{question.name:<28}" + "".join(f"{cell:>20}" for cell in spread))
    return "\n".join([*lines, *not_run(figures)])


def not_run(figures: dict[str, Any]) -> Iterator[str]:
    """A line for each engine whose column has no figures, with the reason."""
    for name, engine in figures["engines"].items():
        if "not_run" in engine:
            yield f"{ENGINES[name]} was {engine['not_run']}"


def _spread(engine: dict[str, Any], name: str) -> str:
    if "questions" not in engine:
        return NONE
    found = engine["questions"][name]
    return f"{spelt(found['p10'])} to {spelt(found['p90'])}"


def markdown(figures: dict[str, Any], block: Block) -> str:
    """One table for the docs."""
    head = f"| {block.title} | {' | '.join(ENGINES.values())} |\n|{' --- |' * (len(ENGINES) + 1)}"
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in cells(figures, block))])
