"""What every page has to be, in both colour schemes, at a desk and on a phone."""

from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.budgets import only_full

WIDE: Final[Any] = {"width": 1280, "height": 900}
PHONE: Final[Any] = {"width": 390, "height": 844}
_AXE: Final[dict[str, Any]] = {
    "resultTypes": ["violations"],  # to name what passes, too, takes several times as long
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "rules": {"target-size": {"enabled": True}},  # axe leaves it out unless asked
}
_MENU: Final = "details.menu"

in_every_light = pytest.mark.parametrize(
    ("scheme", "size"),
    [
        pytest.param("light", WIDE, id="light-wide"),
        pytest.param("dark", PHONE, id="dark-phone", marks=only_full),
    ],
)


def _open(page: Page, selector: str) -> None:
    page.evaluate(
        "all => document.querySelectorAll(all).forEach(one => { one.open = true })", selector
    )


def _violations(
    page: Page, options: dict[str, Any], context: str | None = None
) -> list[tuple[str, list[str]]]:
    found = Axe().run(page, context=context, options=options).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"][:3]]) for one in found]


def _without(rule: str) -> dict[str, Any]:
    return {**_AXE, "rules": {**_AXE["rules"], rule: {"enabled": False}}}


def expect_no_violations(page: Page) -> None:
    """Contrast, names, roles, sizes of targets, with all that opens open; no sideways scroll."""
    _open(page, "details:not(.menu)")
    violations = _violations(page, _AXE)
    if page.locator(_MENU).count():  # they cover what is below them, which was examined before
        _open(page, _MENU)
        violations += _violations(page, _without("target-size"), _MENU)
        page.evaluate("document.querySelectorAll('.menu').forEach(one => { one.open = false })")
    size = page.viewport_size
    width = page.evaluate("document.documentElement.scrollWidth")

    assert not violations, f"{page.url}: {violations}"
    assert size is not None
    assert width <= size["width"], f"{page.url} scrolls sideways: {width} > {size['width']}"
