"""The servers of the process tests, here too."""

from tests.processes.conftest import empty_home, home  # noqa: F401 - fixtures are found by name
