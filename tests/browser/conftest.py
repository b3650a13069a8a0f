"""The servers of the process tests, here too, and a browser."""

from playwright.sync_api import expect

from tests.browser.chromium import browser  # noqa: F401
from tests.processes.conftest import acme, empty_home, home  # noqa: F401 - fixtures are found by name

# Not Playwright's 5 s: the first preview of a policy starts processes, which takes longer on a
# machine that runs more tests than it has cores.
expect.set_options(timeout=60_000)
