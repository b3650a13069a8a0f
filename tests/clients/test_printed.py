"""The page says of each client what the tests of clients find in its log."""

from service.core.settings import REPOSITORY
from tests.clients.managers import CLIENTS
from tests.clients.printed import PRINTED, table


def test_the_page_has_the_table() -> None:
    assert table() in (REPOSITORY / "docs" / "install-proxy.md").read_text()


def test_each_client_is_in_it() -> None:
    assert list(PRINTED) == list(CLIENTS)
