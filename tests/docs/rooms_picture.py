"""Draws the rooms of the service from its imports.

`python -m tests.docs.rooms_picture` writes PICTURE.

Each room stands above all rooms that it imports. An arrow is an import that no other way of arrows
shows.
"""

import ast
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final

from service.core.settings import REPOSITORY

PICTURE: Final = REPOSITORY / "docs" / "rooms.svg"

_WIDTH: Final = 860
_FLOOR: Final = 78
_BOX: Final = 52
_MARGIN: Final = 12
_STYLE: Final = """
    svg { font: 14px system-ui, sans-serif; }
    rect { fill: #f4f6fa; stroke: #8593ab; }
    text { fill: #1c2635; } .about { fill: #4b586c; font-size: 12px; }
    path { stroke: #5b6b85; fill: none; } marker path { fill: #5b6b85; stroke: none; }
    @media (prefers-color-scheme: dark) {
      rect { fill: #1d2430; stroke: #66758f; }
      text { fill: #e8ecf3; } .about { fill: #aeb9ca; }
      path { stroke: #93a2bb; } marker path { fill: #93a2bb; }
    }"""

Imports = Mapping[str, set[str]]


def room_imports(service: Path) -> dict[str, set[str]]:
    rooms = {package.parent.name for package in service.glob("*/__init__.py")}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for room in rooms:
        for module in (service / room).rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("service."):
                    found[room].add(str(node.module).split(".")[1])
    return {room: targets & rooms - {room} for room, targets in found.items()}


def floors(imports: Imports) -> list[list[str]]:
    """The rooms from below, each above all that it imports. Raises ValueError for a circle."""
    left = dict(imports)
    made: list[list[str]] = []
    while left:
        floor = sorted(room for room, targets in left.items() if not targets & left.keys())
        if not floor:
            raise ValueError(f"these import each other: {sorted(left)}")
        made.append(floor)
        for room in floor:
            del left[room]
    return made


def arrows(imports: Imports) -> list[tuple[str, str]]:
    """The imports that do not follow from the others."""
    return sorted(
        (room, target)
        for room, targets in imports.items()
        for target in targets
        if not any(target in _below(imports, other) for other in targets - {target})
    )


def _below(imports: Imports, room: str) -> set[str]:
    return set().union(*({target} | _below(imports, target) for target in imports[room]))


def draw(service: Path) -> str:
    imports = room_imports(service)
    levels = floors(imports)
    height = len(levels) * _FLOOR + 2 * _MARGIN - (_FLOOR - _BOX)
    places: dict[str, tuple[float, float, float]] = {}
    for level, names in enumerate(reversed(levels)):
        width = (_WIDTH - _MARGIN * (len(names) + 1)) / len(names)
        for position, name in enumerate(names):
            left = _MARGIN + position * (width + _MARGIN)
            places[name] = (left, _MARGIN + level * _FLOOR, width)
    boxes = [_box(name, places[name], _promise(service / name)) for name in sorted(places)]
    lines = [_arrow(places[room], places[target]) for room, target in arrows(imports)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
            ' aria-labelledby="title">',
            '  <title id="title">Rooms of the service: each imports only those below it</title>',
            f"  <style>{_STYLE}\n  </style>",
            '  <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"'
            ' markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>',
            *boxes,
            *lines,
            "</svg>\n",
        ]
    )


def _promise(room: Path) -> str:
    """The first line of the room's docstring."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    return text.partition("\n")[0].removesuffix(".")


def _box(name: str, place: tuple[float, float, float], promise: str) -> str:
    left, top, width = place
    x = f'x="{left + width / 2:g}"'
    return (
        f'  <rect x="{left:g}" y="{top:g}" width="{width:g}" height="{_BOX}" rx="6"/>'
        f'<text {x} y="{top + 21:g}" text-anchor="middle" font-weight="600">{name}</text>'
        f'<text {x} y="{top + 40:g}" text-anchor="middle" class="about">{escape(promise)}</text>'
    )


def _arrow(upper: tuple[float, float, float], lower: tuple[float, float, float]) -> str:
    start, end = upper[0] + upper[2] / 2, lower[0] + lower[2] / 2
    # Straight down between a narrow room and a wide one.
    if upper[2] > lower[2]:
        start = end
    elif upper[2] < lower[2]:
        end = start
    return (
        f'  <path d="M{start:g} {upper[1] + _BOX:g} {end:g} {lower[1] - 1:g}"'
        ' marker-end="url(#tip)"/>'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(REPOSITORY / "service"))
