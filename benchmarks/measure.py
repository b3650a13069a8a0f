"""All figures of one engine, in a process of its own, so that memory is measured separately.

`python -m benchmarks.compare` runs this; it prints only errors.
"""

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.answers import Answers, our_answers, plain
from benchmarks.engines import Engine, Row, Source, StoringEngine, engine_class
from benchmarks.measuring import add_rounds, ingest, spread, timed_ms
from benchmarks.memory import watching
from benchmarks.web import measure_web
from benchmarks.workload import EXPORTS, FIRST_PAGES, INGESTS, QUESTIONS, RARE_AT_FIRST, Export

OURS: Final = "countersign"
WARM_UPS: Final = 3
PASSES: Final = 3
"""How often all questions are repeated, so that interference affects only part of a figure."""

WARM_UP_MAX_S: Final = 5.0
EXPORT_ROUNDS: Final = 3
EXPORTS_MAX_S: Final = 60.0
PRUNED_DAYS: Final = 3
LOADED: Final = "loaded.json"


def measure(name: str, source: Source, answers_path: Path, ingest_s: float) -> dict[str, Any]:
    """Every figure of the engine `name` over `source`. Raises WrongAnswer."""
    engine = engine_class(name)(source.folder / "engines" / name, source)
    loaded = load(engine, source, source.folder / "engines" / name)
    try:
        figures: dict[str, Any] = {
            "setup": engine.setup,
            "version": engine.version(),
            "load": loaded,
        }
        answers = our_answers(engine) if name == OURS else Answers.kept(answers_path)
        with watching(engine.pids) as peak:
            figures["questions"] = measure_questions(name, engine, answers)
            figures["exports"] = {export.name: measure_export(engine, export) for export in EXPORTS}
        figures["peak_mb"] = peak.mb
        if (serving := engine.serving()) is not None:
            with serving as served:
                figures["web"] = measure_web(name, served, answers)
        if isinstance(engine, StoringEngine):
            figures["prune_ms"] = measure_prune(engine, source)
            figures["ingest"] = measure_ingest(engine, ingest_s)
        if name == OURS:
            answers.keep(answers_path)
        return figures
    finally:
        engine.close()


def measure_first_query(name: str, source: Source, answers_path: Path, asked: str) -> float:
    """Milliseconds of the question `asked`, the first one after an engine was opened."""
    engine = engine_class(name)(source.folder / "engines" / name, source)
    answers = Answers.kept(answers_path)
    question = next(question for question in QUESTIONS if question.name == asked)
    engine.open()
    try:
        ask, answer = engine.ready(question, None), list[Row]()
        # The garbage collector takes 100 ms to examine all imported objects; a server does this
        # before it begins to serve.
        gc.collect()
        gc.freeze()
        milliseconds = timed_ms(lambda: answer.extend(ask()))
        answers.check(name, question, answer)
        return milliseconds
    finally:
        engine.close()


def load(engine: Engine, source: Source, folder: Path) -> dict[str, float]:
    """Open the engine, loading it unless an earlier run did; what loading took."""
    if not isinstance(engine, StoringEngine):
        engine.load()
        engine.open()
        return {}
    mark = folder / LOADED
    if engine.loads is not None and mark.exists():
        kept: dict[str, Any] = json.loads(mark.read_text())
        if kept.pop("version", None) == engine.loads:
            engine.open()
            return kept
    began_at = time.perf_counter()
    engine.load()
    seconds = time.perf_counter() - began_at
    engine.open()
    # Before pruning and ingest, which leave unused space in files.
    bytes_a_row = engine.bytes_on_disk() / source.rows
    figures = {"rows_per_s": source.rows / seconds, "bytes_a_row": bytes_a_row}
    if engine.loads is not None:
        mark.write_text(json.dumps(figures | {"version": engine.loads}))
    return figures


def measure_questions(name: str, engine: Engine, answers: Answers) -> dict[str, Any]:
    """The time of each question, after its answer was checked."""
    asks = {
        question.name: engine.ready(question, answers.after.get(question.name))
        for question in QUESTIONS
    }
    for question in QUESTIONS:
        answers.check(name, question, asks[question.name]())
    for ask in asks.values():
        warming_s = 0.0
        for _ in range(WARM_UPS):
            if warming_s < WARM_UP_MAX_S:
                warming_s += timed_ms(ask) / 1000
                engine.flush()
    times: dict[str, list[float]] = {question: [] for question in asks}
    for number in range(1, PASSES + 1):
        for one, ask in asks.items():
            add_rounds(times[one], ask, number / PASSES)
    for question in QUESTIONS:
        answers.check(name, question, asks[question.name]())
    figures = {one: spread(some) for one, some in times.items()}
    figures[RARE_AT_FIRST.name] = measure_first_pages(name, engine, answers)
    return figures


def measure_first_pages(name: str, engine: Engine, answers: Answers) -> dict[str, float]:
    """The time of a page for a value not queried before, after other values of its filter."""
    times = []
    for page in FIRST_PAGES:
        ask, answer = engine.ready(page, None), list[Row]()
        times.append(timed_ms(lambda: answer.extend(ask())))  # noqa: B023 - it is called here
        if name == OURS:
            answers.rows[page.name] = plain(answer)
        answers.check(name, page, answer)
    return spread(times)


def measure_export(engine: Engine, export: Export) -> dict[str, float]:
    """Rows per second of the median export, or of a single one if it takes minutes."""
    times: list[float] = []
    rows = 0

    def run() -> None:
        nonlocal rows
        rows = engine.export(export)

    while len(times) < EXPORT_ROUNDS and sum(times) < EXPORTS_MAX_S * 1000:
        times.append(timed_ms(run))
    seconds = spread(times)["median"] / 1000
    return {"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds, "rounds": len(times)}


def measure_prune(engine: StoringEngine, source: Source) -> dict[str, float]:
    """The time to drop a day of the tenant; the days are restored."""
    days = [segment.day for segment in source.largest[:PRUNED_DAYS]]
    try:
        return spread([timed_ms(lambda day=day: engine.prune(day)) for day in days])  # type: ignore[misc]
    finally:
        engine.restore(days)


def measure_ingest(engine: StoringEngine, seconds: float) -> dict[str, Any]:
    """Rows per second of each kind of ingest."""
    figures = {}
    try:
        for one in INGESTS:
            with engine.ingesting(one.rows) as open_client:
                figures[one.name] = ingest(open_client, one.clients, one.rows, seconds)
    finally:
        engine.forget_ingested()
    return figures


def main() -> None:
    """Write the figures of one engine to a file; see the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--ingest-s", type=float, default=3.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--first", help="time this question alone, as the first one")
    given = parser.parse_args()
    source = Source.of(given.folder, given.rows)
    figures: Any
    if given.first:
        figures = measure_first_query(given.engine, source, given.answers, given.first)
    else:
        figures = measure(given.engine, source, given.answers, given.ingest_s)
    given.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
