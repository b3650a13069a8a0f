"""Plots put values where they belong."""

import pytest

from benchmarks.plots import Decades, FromZero


@pytest.mark.parametrize(
    ("most", "step", "steps"),
    [(30.0, 5.0, 6), (57.0, 10.0, 6), (612.3, 100.0, 7), (1.0, 0.2, 5), (95.0, 20.0, 5)],
)
def test_an_axis_from_zero_has_few_round_steps(most: float, step: float, steps: int) -> None:
    assert FromZero.of([0.0, most]) == FromZero(step, steps)


def test_an_axis_from_zero_is_even() -> None:
    axis = FromZero.of([10.0, 40.0])

    assert [axis.at(value) for value, _ in axis.ticks()] == pytest.approx(
        [number / axis.steps for number in range(axis.steps + 1)]
    )


def test_decades_are_as_far_apart_as_each_other() -> None:
    axis = Decades.of([0.3, 250.0])

    assert [label for _, label in axis.ticks()] == ["0.1", "1", "10", "100", "1,000"]
    assert [axis.at(value) for value, _ in axis.ticks()] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
