"""Plots as SVG that is read on a light page and on a dark one: lines on log axes, and bars."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

COLOURS: Final = ("#d1495b", "#2e86ab", "#e8a13a", "#5b8c5a", "#8d6a9f")
"""Ours first. Each is told from its neighbours, and from both backgrounds."""

_WIDTH: Final = 400
_HEIGHT: Final = 230
_LEFT, _TOP, _BOTTOM, _RIGHT = 56, 28, 40, 12
_BAR: Final = 16
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}"
    ".title{font-weight:600}.axis{stroke:#999;fill:none}.grid{stroke:#ddd}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#888}.grid{stroke:#444}}"
)


@dataclass(frozen=True)
class Panel:
    """One diagram: a line of (x, y) for each name."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Bars:
    """One group of bars: a length for each name."""

    title: str
    values: Mapping[str, float]


def lines_svg(panels: Sequence[Panel], names: Sequence[str], x_label: str, y_label: str) -> str:
    """Panels in two columns, both axes logarithmic and the same in every panel."""
    points = [point for panel in panels for line in panel.lines.values() for point in line]
    xs, ys = _decades([x for x, _ in points]), _decades([y for _, y in points])
    parts = [_legend(names)]
    for number, panel in enumerate(panels):
        at = f"translate({number % 2 * _WIDTH},{24 + number // 2 * _HEIGHT})"
        parts.append(f'<g transform="{at}">{_panel(panel, names, xs, ys, x_label, y_label)}</g>')
    return _svg(2 * _WIDTH, 24 + math.ceil(len(panels) / 2) * _HEIGHT, parts)


def bars_svg(groups: Sequence[Bars], names: Sequence[str]) -> str:
    """Groups below each other; in each the longest bar is as wide as there is room."""
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
    xs: tuple[int, int],
    ys: tuple[int, int],
    x_label: str,
    y_label: str,
) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x_of(value: float) -> float:
        return _LEFT + (math.log10(value) - xs[0]) / (xs[1] - xs[0]) * (right - _LEFT)

    def y_of(value: float) -> float:
        return bottom - (math.log10(value) - ys[0]) / (ys[1] - ys[0]) * (bottom - _TOP)

    parts = [_text(_LEFT, 16, panel.title, "title")]
    for power in range(ys[0], ys[1] + 1):
        y = y_of(10**power)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{10**power:g}", anchor="end"))
    parts += [
        _text(x_of(10**power), bottom + 16, _count(10**power), anchor="middle")
        for power in range(xs[0], xs[1] + 1)
    ]
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    parts.append(_text(right, bottom + 32, x_label, anchor="end"))
    parts.append(_text(4, 16, y_label))
    for name, line in panel.lines.items():
        colour = COLOURS[list(names).index(name)]
        placed = [(x_of(x), y_of(y)) for x, y in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
    return "".join(parts)


def _legend(names: Sequence[str]) -> str:
    parts, x = [], _LEFT
    for name, colour in zip(names, COLOURS, strict=False):
        parts.append(f'<rect x="{x}" y="6" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, 16, name))
        x += 40 + 8 * len(name)
    return "".join(parts)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that hold all of `values` between them."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _count(value: float) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value:,.0f}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escaped}</text>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )
