"""Takes the screenshots of docs/ again, of the demo organisation's pages.

Run it as `python -m tests.browser.screenshots`, and look at what it made.
"""

import tempfile
from pathlib import Path
from typing import Any, Final

from service.core.settings import REPOSITORY
from tests.browser.chromium import chromium
from tests.conftest import ADMIN_TOKEN
from tests.processes.homes import Home

DESK: Final = {"viewport": {"width": 1280, "height": 800}}
PHONE: Final = {"viewport": {"width": 390, "height": 844}}
DARK: Final = {"color_scheme": "dark"}
AUDIT: Final = "/audit?last=90d&decision=BLOCKED"
SHOTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "audit-page": (AUDIT, DESK),
    "audit-page-dark": (AUDIT, DESK | DARK),
    "audit-page-phone": (AUDIT, PHONE),
    "overview": ("", DESK),
    "bindings-dark": ("/bindings", DESK | DARK),
    "rejected-phone": ("/rejected", PHONE),
}
"""Each picture: a page of the organisation's, and how it is looked at."""


def take(home: Home) -> None:
    """Every screenshot, of one server over a fresh demo."""
    home.begin("demo", "--no-serve").wait(timeout=300)
    server = home.serve()
    token = {"x-service-admin-token": ADMIN_TOKEN}
    with chromium() as browser:
        for name, (path, options) in SHOTS.items():
            page = browser.new_page(extra_http_headers=token, **options)
            page.goto(f"{server.url}/admin/ui/orgs/acme{path}")
            page.screenshot(path=REPOSITORY / "docs" / f"{name}.png")
            page.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        try:
            take(home)
        finally:
            home.end()
