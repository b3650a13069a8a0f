"""What tests of alerts share: rules made through the API, and the watcher's rounds."""

from typing import Any

RULES = "/api/v1/admin/orgs/acme/alerts/rules"
ALERTS = "/api/v1/admin/orgs/acme/alerts"
BLOCKED = {"name": "Blocked", "query": "decision=BLOCKED", "at_least": 3, "window": "5m"}


async def ask(audit, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    response = await getattr(audit.world.client, method)(
        path, headers=audit.world.admin, **({} if body is None else {"json": body})
    )
    assert response.status_code == status, await response.get_data(as_text=True)
    return await response.get_json()


async def create(audit, **changes: Any) -> str:
    """The id of a new rule: BLOCKED with these changes."""
    return (await ask(audit, "post", RULES, BLOCKED | changes, 201))["id"]


async def fired(audit, **query: str) -> list[dict[str, Any]]:
    """The alerts after one more round, oldest first."""
    await audit.services.alerts.watch_due()
    path = f"{ALERTS}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
    return (await ask(audit, "get", path.rstrip("?")))["alerts"][::-1]


async def tried(audit, days: int = 30, **changes: Any) -> dict[str, Any]:
    body = {"rule": BLOCKED | changes, "days": days}
    return await ask(audit, "post", f"{ALERTS}/backtest", body)
