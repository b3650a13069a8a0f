"""The servers of the process tests, here too."""

from tests.processes.conftest import acme, empty_home, home  # noqa: F401 - fixtures are found by name
