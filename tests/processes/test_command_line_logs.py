"""Commands that run within the process of the tests leave its logs as they were."""

from concurrent.futures import ThreadPoolExecutor

import structlog

from tests.processes.command_line import logging_restored


def test_two_commands_at_a_time_leave_the_logs_as_they_were():
    """The one that ends last began while the other one had configured the logs."""
    before = structlog.get_config()
    first, second = logging_restored(), logging_restored()
    with ThreadPoolExecutor(1) as thread:
        first.__enter__()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
        thread.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        thread.submit(second.__exit__, None, None, None).result()

    assert structlog.get_config() == before
