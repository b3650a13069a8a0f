"""The servers of the process tests, here too, and a real browser to look at them with."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.processes.conftest import empty_home, home  # noqa: F401 - fixtures are found by name

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Ask for it after whatever prepares a data dir.

    Playwright keeps an event loop running in this thread, and `Home.change` wants one of its own.
    """
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()
