"""A long page is rendered in parts, so that other requests have their turn in between."""

import asyncio
from itertools import count

from jinja2 import DictLoader

from service.web.templates import PIECES_AT_ONCE, render_template
from tests.conftest import World


async def test_other_tasks_run_while_a_long_page_is_rendered(world: World, monkeypatch):
    """After each PIECES_AT_ONCE pieces; the page is the same as in one."""
    lines, turns, most = 10 * PIECES_AT_ONCE, count(), 0
    turn, of_this_turn = -1, 0

    async def turn_forever() -> None:
        nonlocal turn
        while True:
            turn = next(turns)
            await asyncio.sleep(0)

    def numbered() -> list[int]:
        nonlocal most, of_this_turn
        seen = turn
        for number in range(lines):
            of_this_turn = of_this_turn + 1 if seen == turn else 1
            seen, most = turn, max(most, of_this_turn)
            yield number

    app = world.app
    monkeypatch.setattr(
        app.jinja_env, "loader", DictLoader({"long": "{% for n in lines %}{{ n }},{% endfor %}"})
    )
    other = asyncio.create_task(turn_forever())
    async with app.test_request_context("/"):
        page = await render_template("long", lines=numbered())
    other.cancel()

    assert page == "".join(f"{number}," for number in range(lines))
    assert most <= PIECES_AT_ONCE
