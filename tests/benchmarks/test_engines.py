"""Every engine that can run here answers every question of the comparison as Countersign does."""

import importlib.util
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from analytics.storage.segment_writer import write_segment
from benchmarks.answers import Answers, WrongAnswer, our_answers
from benchmarks.compare import not_here
from benchmarks.engines import Engine, Source, StoringEngine, engine_class
from benchmarks.lake import FIRST_DAY, day_rows, tenant_id
from benchmarks.measure import LOADED, load
from benchmarks.measuring import ingest
from benchmarks.workload import EXPORTS, INGESTS, QUESTIONS
from tests.budgets import only_full

DAYS = 3
ROWS_A_DAY = 1_500
FIRST_RARE = 20_000
"""The seq from which on there is a row of the rare package."""


def source_of(folder: Path) -> Source:
    """Three days of the largest tenant and of another."""
    segments = []
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number in range(2 * DAYS):
            first, rank = FIRST_RARE + number * ROWS_A_DAY, number % 2
            day = FIRST_DAY + timedelta(days=number // 2)
            rows = day_rows(connection, first, ROWS_A_DAY, day, rank)
            segments.append(
                write_segment(folder / "audit", tenant_id(rank), day, f"seg_{first}", rows)
            )
    return Source(folder, tuple(segments))


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    """A set small enough for every engine.

    Not below pytest's own folder, which is closed to the account that PostgreSQL runs as for root.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "audit").mkdir()
        yield source_of(folder)


def opened(name: str, source: Source) -> Engine:
    """The engine, loaded; the test is skipped where it is not installed."""
    drivers = {"postgres": ("psycopg", "asyncpg"), "clickhouse": ("chdb",)}
    for driver in drivers.get(name, ()):
        if importlib.util.find_spec(driver) is None:
            pytest.skip(f"{driver} is not installed")
    try:
        engine = engine_class(name)(source.folder / "engines" / name, source)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    engine.load()
    engine.open()
    return engine


@pytest.fixture(scope="module")
def ours(source: Source) -> Iterator[Engine]:
    """Countersign over the set."""
    engine = opened("countersign", source)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def answers(ours: Engine) -> Answers:
    """What we answer, on which all have to agree."""
    return our_answers(ours)


def test_the_questions_find_something(answers: Answers) -> None:
    """Engines that all find nothing agree on nothing."""
    empty = {name for name, rows in answers.rows.items() if not rows}

    assert empty <= {"absent", "rare actor"}


SLOW_PEERS = [
    pytest.param(name, marks=[pytest.mark.slow, only_full]) for name in ("postgres", "clickhouse")
]


@pytest.mark.parametrize("name", ["sqlite", "duckdb", *SLOW_PEERS])
def test_a_peer_answers_every_question_as_we_do(
    name: str, source: Source, answers: Answers
) -> None:
    peer = opened(name, source)
    try:
        for _ in range(2):
            for question in QUESTIONS:
                ask = peer.ready(question, answers.after.get(question.name))
                answers.check(name, question, ask())
            assert [peer.export(one) for one in EXPORTS] == [DAYS * ROWS_A_DAY] * len(EXPORTS)
            if isinstance(peer, StoringEngine):
                change_and_restore(peer, source)
    finally:
        peer.close()


def change_and_restore(peer: StoringEngine, source: Source) -> None:
    """Prune a day and take rows in, and be as before."""
    day = source.largest[0].day
    peer.prune(day)
    assert peer.export(EXPORTS[0]) == (DAYS - 1) * ROWS_A_DAY
    peer.restore([day])
    with peer.ingesting(10) as open_client:
        assert ingest(open_client, 2, 10, 0.1)["rows_per_s"] > 0
    peer.forget_ingested()


@only_full
@pytest.mark.slow
def test_we_take_in_what_the_comparison_sends(ours: StoringEngine) -> None:
    largest = INGESTS[-1]
    with ours.ingesting(largest.rows) as open_client:
        assert ingest(open_client, largest.clients, largest.rows, 0.1)["rows_per_s"] > 0


def test_another_answer_is_detected(answers: Answers) -> None:
    newest = QUESTIONS[0]
    right = answers.rows[newest.name]
    for wrong in (right[:-1], right[::-1], [("x", *right[0][1:]), *right[1:]]):
        with pytest.raises(WrongAnswer, match="no match, newest"):
            answers.check("no match", newest, wrong)

    answers.check("no match", newest, right)


def test_an_engine_that_the_disk_has_no_room_for_is_left_out(source: Source) -> None:
    grown = tuple(replace(segment, rows=10**13) for segment in source.segments)
    vast = Source(source.folder / "elsewhere", grown)
    vast.folder.mkdir()

    assert "needs 48,000,002 GB" in str(not_here("sqlite", vast))
    assert not_here("duckdb", vast) is None


def test_what_was_loaded_serves_a_later_run_of_the_same_version(source: Source) -> None:
    """Loading a large set takes an hour."""
    folder = source.folder / "engines" / "sqlite"
    (folder / LOADED).unlink(missing_ok=True)
    peer = engine_class("sqlite")(folder, source)
    first = load(peer, source, folder)
    peer.close()

    (folder / LOADED).write_text((folder / LOADED).read_text().replace("rows_per_s", "then"))
    again = load(peer, source, folder)
    peer.close()
    assert again["then"] == first["rows_per_s"]

    peer.loads = 10**6
    assert "then" not in load(peer, source, folder)
    peer.close()


def test_a_client_that_fails_ends_the_measurement() -> None:
    class Failing:
        def __enter__(self) -> "Failing":
            raise OSError("no connection")

        def __exit__(self, *_: object) -> None: ...

    with pytest.raises(OSError, match="no connection"):
        ingest(Failing, 3, 1, 0.1)  # type: ignore[arg-type]
