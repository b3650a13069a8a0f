"""The OpenAPI document and the help of all commands are as `tests/goldens/contract` has them.

After a change that is intended, `make goldens UPDATE=1` rewrites the files.
"""

from tests.conftest import World
from tests.goldens.contract import HELP, OPENAPI
from tests.goldens.documents import all_help, shown_document


async def test_the_document_is_served_as_it_is_kept(world: World) -> None:
    response = await world.client.get("/openapi.json")

    assert shown_document(await response.get_data(as_text=False)) == OPENAPI.read_text()


def test_each_command_prints_its_help_as_it_is_kept() -> None:
    assert all_help() == HELP.read_text()
