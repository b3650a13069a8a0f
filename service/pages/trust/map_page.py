"""The map of trust as a drawing: repositories, bindings, what they may act for, what they did."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from quart import Blueprint, url_for

from service.access.roles import Capability
from service.pages.page import Page, PageCall, View
from service.pages.state import PageState
from service.trust.trust_map import Installs, MapBinding, total_of, trust_map
from service.web.endpoint import Call

blueprint = Blueprint("dashboard_trust_map", __name__, url_prefix="/admin/ui/orgs/<slug>/trust")

TOP: Final = 34
ROW: Final = 25
GAP: Final = 9
SCOPE_HEIGHT: Final = 36
WIDTH_MAX: Final = 14
WIDTH_MIN: Final = 1.5
"""Of the drawing, in pixels."""


@dataclass(slots=True)
class Line:
    """A binding at `y`, from `start` at its repository to `end` at its scope; pixels."""

    binding: MapBinding
    y: float
    width: float
    start: float = 0
    end: float = 0


@dataclass(slots=True)
class Node:
    """A scope from `y` on, with its lines and what their bindings installed."""

    scope: tuple[str, str]
    lines: list[Line]
    y: float
    height: float
    installs: Installs


@dataclass(slots=True)
class Drawing:
    """Lines by repository, which stands where they `start`; scopes; `most` installs of a bar."""

    repositories: list[list[Line]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    height: float = TOP
    most: int = 0

    def share(self, installs: Installs) -> float:
        """How long the bar of `installs` is, in per cent of the drawing."""
        return round(25 * installs.allowed / self.most, 2) if self.most else 0


@Page(blueprint, "/map", "trust_map.html", needs=Capability.OIDC_READ)
async def map_page(call: PageCall) -> View:
    """The map of trust as of now. Raises StoreFault, QueryTooSlow."""
    answer = await trust_map(Call(call.services.audit, call.caller, call.org))
    path = url_for("dashboard.audit_page", slug=call.org.slug)
    installs = PageState({"since": (answer.since,), "decision": ("ALLOWED",)}, path)
    drawing = draw_map(answer.bindings)
    drawing.most = max(drawing.most, 0 if answer.unbound is None else answer.unbound.allowed)
    return {"map": answer, "drawing": drawing, "installs": installs}


def draw_map(bindings: Sequence[MapBinding]) -> Drawing:
    """The drawing of `bindings`, in which repositories of one scope are together: few lines cross.

    A line is as wide as its part of the installs.
    """
    drawing = Drawing()
    most = max((each.allowed for each in bindings), default=0) or 1
    groups = groupby(bindings, key=lambda each: (each.repository, each.repository_id))
    for own in sorted(([*group] for _, group in groups), key=lambda own: own[0].scope):
        middle = drawing.height + (len(own) - 1) * ROW / 2
        lines = []
        for each in own:
            width = max(round(WIDTH_MAX * each.allowed / most, 1), WIDTH_MIN)
            lines.append(Line(each, drawing.height, width, middle))
            drawing.height += ROW
        drawing.repositories.append(lines)
        drawing.height += GAP
    _place_scopes(drawing)
    return drawing


def _place_scopes(drawing: Drawing) -> None:
    """Put each scope beside its lines, below the one before."""
    lines = sorted((each for own in drawing.repositories for each in own), key=_scope_of)
    end = TOP - ROW / 2
    for scope, group in groupby(lines, key=_scope_of):
        own = list(group)
        used = sum(line.width + 1 for line in own)
        height = max(used, SCOPE_HEIGHT)
        middle = sum(line.y for line in own) / len(own)
        top = round(max(end, middle - height / 2), 1)
        place = top + (height - used) / 2
        for line in own:
            line.end = round(place + line.width / 2, 1)
            place += line.width + 1
        installs = total_of(line.binding.installs or Installs() for line in own)
        drawing.nodes.append(Node(scope, own, top, height, installs))
        drawing.most = max(drawing.most, installs.allowed)
        end = top + height + GAP
    drawing.height = round(max(drawing.height, end), 1)


def _scope_of(line: Line) -> tuple[str, str]:
    return line.binding.scope
