"""The servers of the process tests, here too, and a real browser to look at them with."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.processes.conftest import empty_home, home  # noqa: F401 - fixtures are found by name

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, for as long as the block lasts.

    Playwright keeps an event loop running in this thread meanwhile, and `Home.change` wants one of
    its own: what prepares a data dir comes before.
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


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A browser of the test's own."""
    with chromium() as browser:
        yield browser
