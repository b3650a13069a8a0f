"""The servers of the process tests, here too, and a browser."""

from tests.browser.chromium import browser  # noqa: F401
from tests.processes.conftest import acme, empty_home, home  # noqa: F401 - fixtures are found by name
