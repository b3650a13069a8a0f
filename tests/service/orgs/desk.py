"""What tests of an organisation's API share: requests by a member, and what they changed."""

from typing import Any

from tests.conftest import World

ORG = "/api/v1/admin/orgs/acme"


async def ask(
    world: World, method: str, path: str, body: Any = None, who: str = "owner", **query: str
) -> Any:
    """The answer to this request of the member `who`, or of the operator."""
    headers = world.admin if who == "operator" else world.session(who)
    sent = {} if body is None else {"json": body}
    return await world.client.open(
        f"{ORG}{path}", method=method, headers=headers, query_string=query or None, **sent
    )


async def answered(
    world: World, method: str, path: str, body: Any = None, who: str = "owner", **query: str
) -> Any:
    """The JSON of the answer, which must be a success."""
    answer = await ask(world, method, path, body, who, **query)
    assert answer.status_code in {200, 201}, await answer.get_data(as_text=True)
    return await answer.get_json()


async def last_row(world: World) -> tuple[str, str, str | None, str]:
    """Event, actor, subject and source of acme's newest row."""
    row, *_ = await world.audit()
    return row["event"], row["actor"], row["subject"], row["verdict_source"]
