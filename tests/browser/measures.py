"""Measures every page of the demo organisation in a browser: three widths, two colour schemes.

`python -m tests.browser.measures` prints a table of them. `--save FILE` keeps the figures as JSON,
and `--before FILE` shows those of another version beside these.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page

from tests.browser.chromium import chromium
from tests.conftest import ADMIN_TOKEN
from tests.processes.homes import Home

SIZES: Final = ((1440, 900), (1024, 768), (390, 844))
SCHEMES: Final = ("light", "dark")
SCRIPT: Final = Path(__file__).with_suffix(".js").read_text()

ORG: Final = "/admin/ui/orgs/acme"
PAGES: Final = {
    "Overview": ORG,
    "Audit log": f"{ORG}/audit",
    "Blocked rows": f"{ORG}/audit?last=90d&decision=BLOCKED",
    "Row": f"{ORG}/audit a.open",
    "Package": f"{ORG}/packages?name=lodash",
    "CI run": f"{ORG}/audit?actor_source=oidc_* a.open a[href*='/runs?']",
    "Exports": f"{ORG}/exports",
    "New export": f"{ORG}/exports/new",
    "Reports": f"{ORG}/reports",
    "Access report": f"{ORG}/reports/access",
    "Evidence": f"{ORG}/reports/evidence",
    "Bindings": f"{ORG}/bindings",
    "Binding": f"{ORG}/bindings a[href*='/bindings/obind_']",
    "New binding": f"{ORG}/bindings/new",
    "Rejected": f"{ORG}/rejected",
    "Advice": f"{ORG}/trust/advice",
    "Map of trust": f"{ORG}/trust/map",
    "Explain": f"{ORG}/bindings/explain",
    "Revoke a repository": f"{ORG}/bindings/revoke",
    "Members": f"{ORG}/members",
    "Teams": f"{ORG}/teams",
    "Projects": f"{ORG}/projects",
    "API keys": f"{ORG}/keys",
    "Roles": f"{ORG}/roles",
    "Install policy": f"{ORG}/policy",
    "Check a release": f"{ORG}/policy/check",
    "Exceptions": f"{ORG}/policy/exceptions",
    "Affected installs": f"{ORG}/affected",
    "Install proxy": f"{ORG}/proxy",
    "API documentation": "/docs",
    "Not found": f"{ORG}/nothing",
}
"""Each page by its name: its address, or that of another page and the links that lead to it."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What one page is like at one size in one scheme."""

    row_heights: list[int]
    rows_in_view: int
    """Rows that are whole above the fold."""
    words_broken: list[str]
    """Words that end on another line than they begin."""
    texts_short: int
    """Texts of tables that end in an ellipsis."""
    texts_cut: list[str]
    """Those of them for which the columns of their table have room."""
    left_edges: list[int]
    """Where the blocks of the page begin."""
    contrast: float
    """The lowest of all texts with the ground behind them."""
    faintest: str
    page_height: int
    page_width: int


def measure(page: Page) -> Measures:
    """The measures of the page that is open."""
    return Measures(**page.evaluate(SCRIPT))


def _open(page: Page, server: str, address: str) -> bool:
    """Open the page at `address`; False if a link to it is missing."""
    path, *links = address.split(" ")
    page.goto(server + path)
    for link in links:
        target = page.locator(link).first
        if not target.count():
            return False
        page.goto(server + (target.get_attribute("href") or ""))
    return True


def measure_all(browser: Browser, server: str) -> dict[str, dict[str, Measures]]:
    """For each page that exists, its measures by size and scheme, such as `1440 light`."""
    found: dict[str, dict[str, Measures]] = {name: {} for name in PAGES}
    for width, height in SIZES:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]  # one of the literals
                reduced_motion="reduce",
                extra_http_headers={"x-service-admin-token": ADMIN_TOKEN},
            )
            page = context.new_page()
            for name, address in PAGES.items():
                if _open(page, server, address):
                    found[name][f"{width} {scheme}"] = measure(page)
            context.close()
    return {name: by_size for name, by_size in found.items() if by_size}


@contextmanager
def demo_server() -> Iterator[str]:
    """The address of a server over a fresh demo."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        try:
            home.begin("demo", "--no-serve").wait(timeout=600)
            yield home.serve().url
        finally:
            home.end()


Figures = dict[str, dict[str, dict[str, Any]]]


def _each(by_size: dict[str, dict[str, Any]], schemes: tuple[str, ...] = ("light",)) -> list[Any]:
    return [by_size[f"{width} {scheme}"] for width, _ in SIZES for scheme in schemes]


def _cells(by_size: dict[str, dict[str, Any]]) -> list[str]:
    """The columns of one page: light at each width, and the worst of both schemes for contrast."""
    each = _each(by_size)

    def joined(values: list[Any]) -> str:
        return " · ".join(str(value) for value in values)

    has_rows = any(one["row_heights"] for one in each)
    heights = [round(statistics.median(one["row_heights"] or [0])) for one in each]
    return [
        joined(heights) if has_rows else "–",
        joined([one["rows_in_view"] for one in each]) if has_rows else "–",
        joined([len(one["words_broken"]) for one in each]),
        joined([f"{one['texts_short']}/{len(one['texts_cut'])}" for one in each]),
        joined([len(one["left_edges"]) for one in each]),
        joined([min(one["contrast"] for one in _each(by_size, (scheme,))) for scheme in SCHEMES]),
        joined([one["page_height"] for one in each]),
    ]


def table(now: Figures, before: Figures) -> str:
    """A Markdown table: one line a page, `before → now` where both have it and differ."""
    widths = " · ".join(str(width) for width, _ in SIZES)
    lines = [
        f"| page ({widths} px) | height of a row | rows above the fold | words broken "
        "| texts cut, of them with room "
        "| left edges | lowest contrast, light · dark | height of the page |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, by_size in now.items():
        cells = _cells(by_size)
        if name in before:
            pairs = zip(_cells(before[name]), cells, strict=True)
            cells = [new if old == new else f"{old} → {new}" for old, new in pairs]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the demo, or the server at `--server`, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="address of a running server with the demo in it")
    parser.add_argument("--save", type=Path, help="keep the figures in this file")
    parser.add_argument("--before", type=Path, help="figures that --save kept of another version")
    asked = parser.parse_args()
    with chromium() as browser:
        if asked.server:
            measured = measure_all(browser, asked.server)
        else:
            with demo_server() as server:
                measured = measure_all(browser, server)
    now: Figures = {
        name: {size: asdict(one) for size, one in by_size.items()}
        for name, by_size in measured.items()
    }
    if asked.save:
        asked.save.write_text(json.dumps(now, indent=1))
    before: Figures = json.loads(asked.before.read_text()) if asked.before else {}
    sys.stdout.write(table(now, before) + "\n")


if __name__ == "__main__":
    main()
