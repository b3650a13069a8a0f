"""What limits a fleet, computed from figures that were measured: the formulae of docs/scale.md.

A figure is what one setting of the run reached; a use is what an installation asks for. Everything
here is arithmetic, so that the page can show each formula beside its result.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

DAY_S: Final = 86_400
YEAR_DAYS: Final = 365


@dataclass(frozen=True)
class Use:
    """An installation: what it stores, and what it does at its busiest."""

    nodes: int
    tenants: int
    rows: int
    days: int
    """Over which the rows are spread evenly."""

    busy: float
    """How many times the mean the busiest hour has."""

    batch_rows: int
    """Rows in a request of ingest."""

    @property
    def rows_per_s(self) -> float:
        """In the mean."""
        return self.rows / self.days / DAY_S

    @property
    def busy_rows_per_s(self) -> float:
        """In the busiest hour."""
        return self.rows_per_s * self.busy


FLEET: Final = Use(
    nodes=10, tenants=1_000, rows=10_000_000_000, days=YEAR_DAYS, busy=10, batch_rows=100
)
"""The installation of the page."""


@dataclass(frozen=True)
class Measured:
    """The figures that the page computes with."""

    one_row_per_s: float
    """Rows a second in requests of one row, at the most nodes that were measured."""

    batched_rows_per_s: float
    slow_one_row_per_s: float
    """The same with slower syncs."""

    page_cpu_ms: float
    """Processor time of a newest page while another node writes."""

    catalog_bytes: float
    """A file takes in the database."""

    publish_ms: Mapping[int, float]
    """A first publication of so many files, in the slower format."""

    one_more_ms: Mapping[int, float]
    cold_ms: Mapping[int, float]
    """A page on an empty cache over so many days, each a file."""

    row_bytes: float
    export_rows_per_s: float
    merge_rows_per_s: float


@dataclass(frozen=True)
class Line:
    """A limit: what is asked for of what can be had."""

    name: str
    formula: str
    needed: float
    available: float
    unit: str

    @property
    def share(self) -> float:
        """1 where the limit is reached."""
        return self.needed / self.available


def measured(
    fleet: Mapping[str, Any], rows: Mapping[str, Any], claims: Mapping[str, Any]
) -> Measured:
    """From a run of bench_fleet, a comparison (bytes a row, export) and the claims (merging)."""
    ingest, published = fleet["ingest"], fleet["publication"]
    slow = next(each for name, each in ingest.items() if name.startswith("1 row a request, sync"))
    ours = rows["engines"]["countersign"]
    return Measured(
        one_row_per_s=_most_nodes(ingest["1 row a request, rows/s"]),
        batched_rows_per_s=_most_nodes(ingest["100 rows a request, rows/s"]),
        slow_one_row_per_s=_most_nodes(slow),
        page_cpu_ms=fleet["processor"]["processor time of a newest page, ms"]["3 nodes"],
        catalog_bytes=fleet["catalog"]["bytes a file in the catalog"],
        publish_ms=_by_files(published, "first publication"),
        one_more_ms=_by_files(published, "one more file"),
        cold_ms={int(name.split()[0]): figures["S3"] for name, figures in fleet["cold"].items()},
        row_bytes=ours["load"]["bytes_a_row"],
        export_rows_per_s=ours["exports"]["export CSV"]["rows_per_s"],
        merge_rows_per_s=claims["segments"]["figures"]["merge of 20, rows/s"],
    )


def _most_nodes(figures: Mapping[str, float]) -> float:
    return figures[max(name for name in figures if name.startswith("PostgreSQL"))]


def _by_files(published: Mapping[str, Mapping[str, float]], what: str) -> dict[int, float]:
    return {
        int(name.partition(" ")[0].replace(",", "")): max(figures.values())
        for name, figures in published.items()
        if f": {what}," in name
    }


def files_of(use: Use) -> int:
    """Live files: one for each tenant and day, once days are merged."""
    return use.tenants * use.days


def at_files(times: Mapping[int, float], files: int) -> float:
    """A time at `files`, from the largest number that was measured, in proportion."""
    largest = max(times)
    return times[largest] * files / largest


def limits(use: Use, figures: Measured) -> list[Line]:
    """What an installation needs of each part, the scarcest first."""
    files = files_of(use)
    lines = [
        Line(
            "commits, one row a request",
            "rows/s in the busiest hour ÷ rows/s measured",
            use.busy_rows_per_s,
            figures.one_row_per_s,
            "rows/s",
        ),
        Line(
            f"commits, {use.batch_rows} rows a request",
            "rows/s in the busiest hour ÷ rows/s measured",
            use.busy_rows_per_s,
            figures.batched_rows_per_s,
            "rows/s",
        ),
        Line(
            "commits, one row a request, slower syncs",
            "rows/s in the busiest hour ÷ rows/s measured",
            use.busy_rows_per_s,
            figures.slow_one_row_per_s,
            "rows/s",
        ),
        Line(
            "sealing and merging, one node under the lease",
            "2 × rows of a day ÷ rows/s of a merge, of the seconds of a day",
            2 * use.rows / use.days / figures.merge_rows_per_s,
            DAY_S,
            "s a day",
        ),
        Line(
            "publishing, one node under the lease",
            "one more file among all files, of the 300 s between publications",
            at_files(figures.one_more_ms, files) / 1000,
            300,
            "s",
        ),
        Line(
            "export of a whole tenant",
            "rows of a tenant ÷ rows/s of an export, of the hour that one may take",
            use.rows / use.tenants / figures.export_rows_per_s,
            3_600,
            "s",
        ),
    ]
    return sorted(lines, key=lambda line: line.share, reverse=True)


def pages_per_s(use: Use, figures: Measured, cores: int) -> float:
    """Newest pages that the nodes can answer, each with `cores`."""
    return use.nodes * cores * 1000 / figures.page_cpu_ms


def sizes(use: Use, figures: Measured) -> dict[str, float]:
    """What is stored where, by name and unit."""
    files = files_of(use)
    return {
        "files of segments, files": files,
        "objects with their indexes, objects": 2 * files,
        "segments on S3, GB": use.rows * figures.row_bytes / 1e9,
        "catalog in the database, GB": files * figures.catalog_bytes / 1e9,
        "catalog of one tenant, kB": use.days * figures.catalog_bytes / 1e3,
        "cache for the last week of every tenant, GB": (
            use.rows / use.days * 7 * figures.row_bytes / 1e9
        ),
        "requests to S3 for a cold query of 90 days, requests": 2 * 90,
        "first publication of all files, s": at_files(figures.publish_ms, files) / 1000,
    }


def spelt_size(value: float) -> str:
    """At most three digits, and thousands with commas."""
    if value >= 100:
        digits = 2 - math.floor(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}"
