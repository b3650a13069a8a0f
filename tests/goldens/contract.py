"""The goldens that are kept here, so that each change of them is a part of its commit."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from service.app.application import create_app
from service.app.bootstrap import prepare
from tests.conftest import settings_over
from tests.goldens.documents import all_help, shown_document

_FOLDER: Final = Path(__file__).parent / "contract"
OPENAPI: Final = _FOLDER / "openapi.json"
HELP: Final = _FOLDER / "help.txt"


async def _document() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(await prepare(settings_over(Path(folder))))
        response = await app.test_client().get("/openapi.json")
        return bytes(await response.get_data(as_text=False))


def update() -> None:
    OPENAPI.write_text(shown_document(asyncio.run(_document())))
    HELP.write_text(all_help())
