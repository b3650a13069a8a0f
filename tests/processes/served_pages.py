"""Serves pages to itself, in a process of its own, and prints the modules that it then has."""

import asyncio
import json
import sys

from service.app.application import create_app
from service.app.bootstrap import prepare
from service.core.settings import load_settings


async def modules_after(paths: list[str], secret: str) -> list[str]:
    """All modules of this process once it has served what is at `paths`."""
    app = create_app(await prepare(load_settings()))
    async with app.test_app():
        client = app.test_client()
        for path in paths:
            answer = await client.get(path, headers={"authorization": f"Bearer {secret}"})
            assert answer.status_code == 200, (path, answer.status_code, await answer.get_data())
    return sorted(sys.modules)


if __name__ == "__main__":
    _, given_secret, *given_paths = sys.argv
    sys.stdout.write(json.dumps(asyncio.run(modules_after(given_paths, given_secret))))
