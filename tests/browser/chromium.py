"""The browser that tests drive: Debian's Chromium, where there is one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.budgets import only_full

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]

with_and_without_scripts = pytest.mark.parametrize(
    "has_scripts",
    [
        pytest.param(True, id="with scripts"),
        pytest.param(False, id="without scripts", marks=only_full),
    ],
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for as long as the block lasts.

    Playwright keeps an event loop running in this thread meanwhile: no test beside it may want one
    of its own.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests of the package; a page or a context of it is each test's own."""
    with chromium() as browser:
        yield browser
