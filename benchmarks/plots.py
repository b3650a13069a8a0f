"""Line and bar plots as SVG, readable on light and dark pages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

COLOURS: Final = ("#d1495b", "#2e86ab", "#e8a13a", "#5b8c5a", "#8d6a9f")
"""Ours first. Each is distinguishable from its neighbours and from both backgrounds."""

_WIDTH: Final = 400
_HEIGHT: Final = 230
_LEFT, _TOP, _BOTTOM, _RIGHT = 56, 28, 40, 12
_BAR: Final = 16
STEPS_MAX: Final = 8
"""On an axis from zero."""
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}"
    ".title{font-weight:600}.axis{stroke:#999;fill:none}.grid{stroke:#ddd}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#888}.grid{stroke:#444}}"
)


class Axis(Protocol):
    """Where values lie between the ends of a line."""

    def at(self, value: float) -> float:
        """From 0 to 1."""

    def ticks(self) -> list[tuple[float, str]]:
        """The labels beside the axis, and their values."""


@dataclass(frozen=True)
class Decades:
    """Logarithmic, from one power of ten to another."""

    low: int
    high: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The powers of ten that enclose all of `values`."""
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1))

    def at(self, value: float) -> float:
        """See Axis."""
        return (math.log10(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """See Axis."""
        return [(10**power, _count(10**power)) for power in range(self.low, self.high + 1)]


@dataclass(frozen=True)
class FromZero:
    """Linear, in even steps from zero."""

    step: float
    steps: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """A small number of steps of 1, 2 or 5 times a power of ten."""
        most = max(values)
        power = 10.0 ** math.floor(math.log10(most))
        step = next(
            one for one in (power / 5, power / 2, power, 2 * power) if most / one <= STEPS_MAX
        )
        return cls(step, math.ceil(most / step))

    def at(self, value: float) -> float:
        """See Axis."""
        return value / (self.step * self.steps)

    def ticks(self) -> list[tuple[float, str]]:
        """See Axis."""
        return [(number * self.step, f"{number * self.step:g}") for number in range(self.steps + 1)]


@dataclass(frozen=True)
class Panel:
    """One diagram: a line of (x, y) points for each name."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]

    @property
    def points(self) -> list[tuple[float, float]]:
        """Those of all its lines."""
        return [point for line in self.lines.values() for point in line]


@dataclass(frozen=True)
class Bars:
    """One group of bars: a length for each name."""

    title: str
    values: Mapping[str, float]


def lines_svg(panels: Sequence[Panel], names: Sequence[str], x_label: str, y_label: str) -> str:
    """Panels in two columns, both axes logarithmic and the same in every panel."""
    points = [point for panel in panels for point in panel.points]
    x_axis, y_axis = Decades.of([x for x, _ in points]), Decades.of([y for _, y in points])
    drawn = [_panel(panel, names, x_axis, y_axis, x_label, y_label) for panel in panels]
    return _in_columns(drawn, [_legend(names)])


def over_time_svg(panels: Sequence[Panel], x_label: str) -> str:
    """Panels in two columns, of one line each; both axes begin at zero."""
    drawn = []
    for panel in panels:
        x_axis, y_axis = (FromZero.of(values) for values in zip(*panel.points, strict=True))
        drawn.append(_panel(panel, list(panel.lines), x_axis, y_axis, x_label, "", dots=False))
    return _in_columns(drawn, [])


def _in_columns(drawn: Sequence[str], head: list[str]) -> str:
    parts = [
        f'<g transform="translate({number % 2 * _WIDTH},{24 + number // 2 * _HEIGHT})">{one}</g>'
        for number, one in enumerate(drawn)
    ]
    return _svg(2 * _WIDTH, 24 + math.ceil(len(drawn) / 2) * _HEIGHT, [*head, *parts])


def bars_svg(groups: Sequence[Bars], names: Sequence[str]) -> str:
    """Groups below each other; in each the longest bar has the full width."""
    parts, y = [], 8
    for group in groups:
        parts.append(_text(8, y + 14, group.title, "title"))
        y += 22
        longest = max(group.values.values())
        for name, value in group.values.items():
            width = max(1, value / longest * (2 * _WIDTH - 280))
            colour = COLOURS[list(names).index(name)]
            parts.append(_text(8, y + 12, name))
            parts.append(f'<rect x="120" y="{y}" width="{width:.1f}" height="12" fill="{colour}"/>')
            parts.append(
                _text(126 + width, y + 11, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")
            )
            y += _BAR
        y += 12
    return _svg(2 * _WIDTH, y, parts)


def _panel(
    panel: Panel,
    names: Sequence[str],
    x_axis: Axis,
    y_axis: Axis,
    x_label: str,
    y_label: str,
    *,
    dots: bool = True,
) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x_of(value: float) -> float:
        return _LEFT + x_axis.at(value) * (right - _LEFT)

    def y_of(value: float) -> float:
        return bottom - y_axis.at(value) * (bottom - _TOP)

    parts = [_text(_LEFT, 16, panel.title, "title")]
    for value, label in y_axis.ticks():
        parts.append(f'<path class="grid" d="M{_LEFT} {y_of(value):.1f}H{right}"/>')
        parts.append(_text(_LEFT - 6, y_of(value) + 4, label, anchor="end"))
    parts += [
        _text(x_of(value), bottom + 16, label, anchor="middle") for value, label in x_axis.ticks()
    ]
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    parts.append(_text(right, bottom + 32, x_label, anchor="end"))
    parts.append(_text(4, 16, y_label))
    for name, line in panel.lines.items():
        colour = COLOURS[list(names).index(name)]
        placed = [(x_of(x), y_of(y)) for x, y in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if dots:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed
            ]
    return "".join(parts)


def _legend(names: Sequence[str]) -> str:
    parts, x = [], _LEFT
    for name, colour in zip(names, COLOURS, strict=False):
        parts.append(f'<rect x="{x}" y="6" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, 16, name))
        x += 40 + 8 * len(name)
    return "".join(parts)


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escaped}</text>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )
