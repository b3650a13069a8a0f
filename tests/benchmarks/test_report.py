"""The page about benchmarks says what was measured, and can be made again of the figures kept."""

import pytest

from benchmarks.engines import ENGINES
from benchmarks.report import DOCS, PAGE, all_results, pages, plots, rewritten
from benchmarks.tables import text_tables
from benchmarks.workload import EXPORTS, INGESTS, QUESTIONS, WEB_QUESTIONS


def test_every_page_is_what_the_figures_kept_make_of_it() -> None:
    assert all_results()
    made = pages()
    assert {path: rewritten(path.read_text(), parts) for path, parts in made.items()} == {
        path: path.read_text() for path in made
    }


def test_the_plots_are_what_the_figures_kept_make_of_them() -> None:
    made = plots(all_results())

    assert {name: (DOCS / name).read_text() for name in made} == made


@pytest.mark.parametrize("name", [one.name for one in (*QUESTIONS, *EXPORTS, *INGESTS)])
def test_everything_that_is_measured_is_explained(name: str) -> None:
    """A figure without its question says nothing."""
    assert f"\n| {name} | " in PAGE.read_text()


def test_every_page_asked_for_over_http_is_one_of_the_questions() -> None:
    assert {one.name for one in QUESTIONS} >= set(WEB_QUESTIONS)


def test_a_page_without_room_for_a_part_is_refused() -> None:
    """A lost marker must not leave old figures standing."""
    with pytest.raises(ValueError, match="no place for figures"):
        rewritten("# Benchmarks", {"figures": "new"})


def test_an_engine_that_was_not_run_is_named_below_the_tables() -> None:
    (largest,) = [figures for figures in all_results() if figures["size"] == "100m"]
    absent = {name for name, engine in largest["engines"].items() if "not_run" in engine}
    last = text_tables(largest).splitlines()[-len(absent) :]

    assert len(absent) == 2
    assert [line.partition(" was not run: needs ")[0] for line in last] == [
        ENGINES[name] for name in largest["engines"] if name in absent
    ]
