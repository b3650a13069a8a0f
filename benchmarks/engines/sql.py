"""The questions in SQL; a Dialect holds what differs between engines."""

from dataclasses import dataclass
from typing import Any

from analytics.model.cursors import Position
from analytics.model.filters import Term
from analytics.model.schema import AUDIT_SCHEMA
from benchmarks.engines import COLUMNS
from benchmarks.workload import PAGE_ROWS, Histogram, Page, Question, Top

NEWEST_FIRST = f"ORDER BY created_at DESC, seq DESC LIMIT {PAGE_ROWS}"


class Dialect:
    """An engine's SQL. Tenants are numbered in a column; the largest is 0."""

    columns = ", ".join(COLUMNS)
    source = "rows"
    largest = "tenant = 0"
    day = "created_at::DATE"

    def bind(self, name: str, value: object) -> str:
        """The placeholder of a bound value."""
        return f"${name}"

    def begins(self, column: str, name: str, text: str, bound: dict[str, Any]) -> str:
        """`column` begins with `text`; as a range, which every B-tree supports."""
        bound[f"{name}_end"] = text[:-1] + chr(ord(text[-1]) + 1)
        bound[name] = text
        low, high = self.bind(name, text), self.bind(f"{name}_end", text)
        return f"{column} >= {low} AND {column} < {high}"

    def behind(self, after: Position, bound: dict[str, Any]) -> str:
        """The rows that come after `after`."""
        bound["at"], bound["seq"] = after.created_at, after.seq
        return f"(created_at, seq) < ({self.bind('at', after.created_at)}, {self.bind('seq', 0)})"

    def order(self, page: Page) -> str:
        """Order and limit."""
        return NEWEST_FIRST

    def condition(self, column: str, name: str, term: Term, bound: dict[str, Any]) -> str:
        """One value of one filter."""
        if term.is_prefix and not term.is_negated:
            return self.begins(column, name, term.text, bound)
        bound[name] = term.text
        if not term.is_negated:
            return f"{column} = {self.bind(name, term.text)}"
        assert not AUDIT_SCHEMA.field(column).nullable, "a null would have to meet the negation"
        return f"{column} <> {self.bind(name, term.text)}"


@dataclass(frozen=True)
class Statement:
    """SQL and its bound values."""

    sql: str
    bound: dict[str, Any]


def statement(dialect: Dialect, question: Question, after: Position | None) -> Statement:
    """`question` as one SELECT."""
    match question:
        case Page():
            return _page(dialect, question, after)
        case Histogram():
            return Statement(
                f"SELECT {dialect.day} AS day, decision, count(*) AS n FROM {dialect.source}"
                f" WHERE {dialect.largest} GROUP BY 1, 2 ORDER BY 1, 2",
                {},
            )
        case Top(column=column):
            return Statement(
                f"SELECT {column}, count(*) AS n FROM {dialect.source}"
                f" WHERE {dialect.largest} AND {column} <> ''"
                f" GROUP BY {column} ORDER BY n DESC, {column} LIMIT 10",
                {},
            )


def _page(dialect: Dialect, page: Page, after: Position | None) -> Statement:
    bound: dict[str, Any] = {}
    clauses = [dialect.largest]
    for condition in page.query.conditions:
        (term,) = condition.terms
        clauses.append(dialect.condition(condition.column, condition.column, term, bound))
    if after is not None:
        clauses.append(dialect.behind(after, bound))
    return Statement(
        f"SELECT {dialect.columns} FROM {dialect.source} WHERE {' AND '.join(clauses)}"
        f" {dialect.order(page)}",
        bound,
    )
