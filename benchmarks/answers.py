"""The expected answers of all engines, taken from ours; an engine that differs has failed."""

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from analytics.model.cursors import Position
from benchmarks.engines import Engine, Row
from benchmarks.workload import QUESTIONS, Page, Question

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WrongAnswer(Exception):
    """An engine's answer differs from ours, or ours is impossible."""


@dataclass
class Answers:
    """Our answers, by the question's name; and the positions at which pages begin."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    after: dict[str, Position] = field(default_factory=dict)
    web: dict[str, Any] = field(default_factory=dict)

    def check(self, engine: str, question: Question, answer: Iterable[Row]) -> None:
        """Raise WrongAnswer unless `answer` equals ours, including its order."""
        given, ours = plain(answer), self.rows[question.name]
        if given == ours:
            return
        wrong = [pair for pair in zip(given, ours, strict=False) if pair[0] != pair[1]]
        raise WrongAnswer(
            f"{engine}, {question.name}: {len(given)} rows for {len(ours)}; first of {len(wrong)}"
            f" that differ: {wrong[:1]}"
        )

    @classmethod
    def kept(cls, path: Path) -> "Answers":
        """The answers that `keep` wrote."""
        found: Answers = pickle.loads(path.read_bytes())  # noqa: S301 - our own file of this run
        return found

    def keep(self, path: Path) -> None:
        """Write them to a file for the other engines' processes."""
        path.write_bytes(pickle.dumps(self))


def our_answers(engine: Engine) -> Answers:
    """The answers of `engine`, which is Countersign, and the positions of its pages."""
    answers = Answers()
    for question in QUESTIONS:
        after = None
        if isinstance(question, Page) and question.behind:
            after = _position(engine, question)
            answers.after[question.name] = after
        answers.rows[question.name] = plain(engine.ready(question, after)())
    return answers


def _position(engine: Engine, page: Page) -> Position:
    """Where `page` begins, found by paging there from the first page."""
    after, missing = None, page.behind
    while missing:
        rows = engine.ready(page, after)()[:missing]
        if not rows:
            raise WrongAnswer(f"there are no {page.behind} rows to be behind of")
        missing -= len(rows)
        seq, created_us = rows[-1][0], rows[-1][1]
        after = Position(2**62, _EPOCH + timedelta(microseconds=created_us), seq)
    assert after is not None
    return after


def plain(answer: Iterable[Sequence[Any]]) -> list[Row]:
    """An answer in a driver-independent form: instants as microseconds, days as numbers."""
    return [tuple(map(_plain, row)) for row in answer]


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else value
