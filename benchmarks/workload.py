"""The workload of the comparison: the questions to every engine, in an engine-independent form.

All are about the largest tenant. Filters have the meaning that they have in the API.
"""

from dataclasses import dataclass, replace
from typing import Final

from analytics.model.filters import Query, parse_query
from benchmarks.lake import RARE_ACTOR, RARE_PACKAGE, rarely_installed

SIZES: Final = {
    "20k": 20_000,
    "200k": 200_000,
    "2m": 2_000_000,
    "20m": 20_000_000,
    "100m": 100_000_000,
}
PAGE_ROWS: Final = 51
"""For a page of 50: the additional row shows whether there is a next page."""
DEEP_ROWS: Final = 50 * 50
FREQUENT_PACKAGE: Final = "@scope-0/lib-0"
"""One row in seven has this value."""


@dataclass(frozen=True)
class Page:
    """The PAGE_ROWS newest rows of `filters`, all columns, after the `behind` newest ones."""

    name: str
    asks: str
    filters: tuple[tuple[str, str], ...] = ()
    behind: int = 0

    @property
    def query(self) -> Query:
        """The filters, parsed."""
        return parse_query({name: [value] for name, value in self.filters})


@dataclass(frozen=True)
class Histogram:
    """The number of rows by UTC day and decision."""

    name: str
    asks: str


@dataclass(frozen=True)
class Top:
    """The ten most frequent values of `column` with their counts; ties by value."""

    name: str
    asks: str
    column: str


Question = Page | Histogram | Top

QUESTIONS: Final[tuple[Question, ...]] = (
    Page("newest", "the newest rows"),
    Page("common", "the newest of the blocked rows, one in ten", (("decision", "BLOCKED"),)),
    Page(
        "two filters",
        "the newest blocked rows of the most frequent package, one in 70",
        (("decision", "BLOCKED"), ("package", FREQUENT_PACKAGE)),
    ),
    Page("rare package", "a package that one row in 20,000 has", (("package", RARE_PACKAGE),)),
    Page("rare actor", "an actor of one CI job in 20,000", (("actor", RARE_ACTOR),)),
    Page("absent", "a package that no row has", (("package", "nowhere"),)),
    Page("rare prefix", "packages that begin with `rare-`", (("package", "rare-*"),)),
    Page(
        "common prefix",
        "packages that begin with `react-`, one in fifteen",
        (("package", "react-*"),),
    ),
    Page("negation", "all but `install_allowed`", (("event", "!install_allowed"),)),
    Page("50 pages on", "the newest rows behind 50 pages of 50, by cursor", behind=DEEP_ROWS),
    Histogram("histogram", "rows of 90 days by day and decision"),
    Top("top packages", "the ten most frequent packages", "package_name"),
    Top("top actors", "the ten most frequent actors", "actor"),
)

AFTER_RESTART: Final = (
    "newest",
    "two filters",
    "rare package",
    "absent",
    "histogram",
    "top packages",
)
"""Questions that are also measured as the first one in a new process."""

RARE_AT_FIRST: Final = Page(
    "rare package, at first",
    "the first page of a package that one row in 300,000 has: another package each time",
)
FIRST_PAGES: Final = tuple(
    replace(RARE_AT_FIRST, name=f"{RARE_AT_FIRST.name} {place}", filters=(("package", name),))
    for place, name in enumerate(map(rarely_installed, range(1, 64, 4)))
)
"""Each is asked only once, so that cached answers do not help."""


@dataclass(frozen=True)
class Export:
    """All rows of the tenant, with all columns, as a discarded text in `format`."""

    name: str
    asks: str
    format: str


EXPORTS: Final = (
    Export("export CSV", "every row as CSV", "csv"),
    Export(
        "export JSON lines", "every row as a JSON object on a line, the payload nested", "ndjson"
    ),
)


@dataclass(frozen=True)
class Ingest:
    """Concurrent `clients` add `rows` per request; each waits for its commit."""

    name: str
    asks: str
    rows: int
    clients: int


INGESTS: Final = tuple(
    Ingest(
        f"ingest {rows:,} x {clients}",
        f"{rows:,} row{'s' * (rows > 1)} a request from {clients} client{'s' * (clients > 1)}",
        rows,
        clients,
    )
    for rows in (1, 1_000)
    for clients in (1, 16)
)

WEB_QUESTIONS: Final = ("newest", "common", "two filters", "rare package", "absent")
"""The pages that are also requested over HTTP, 50 rows each."""
