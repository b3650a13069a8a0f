"""Visits of members to the pages of acme, with an ear for what the browser complains of."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from service.app.composition import Services
from service.orgs.members import add_member, issue_cookie
from service.store.organisations import get_org
from tests.browser.accessible import WIDE
from tests.conftest import BY_OPERATOR
from tests.processes.homes import Home, Server, add_acme

Fill = Callable[[Services], Coroutine[Any, Any, None]]


@dataclass
class Place:
    """A server of acme, and the session cookies of some members."""

    server: Server
    cookies: dict[str, str]

    @property
    def audit(self) -> str:
        return f"{self.overview}/audit"

    @property
    def overview(self) -> str:
        return f"{self.server.url}/admin/ui/orgs/acme"

    def ingest(self, items: list[dict[str, Any]]) -> None:
        with self.server.client() as client:
            answer = client.post("/api/v1/admin/orgs/acme/audit/events", json=items)
            assert answer.json()["rejected"] == []


async def _cookies(services: Services) -> dict[str, str]:
    cookies = {}
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        for role in ("owner", "auditor", "member"):
            who = await add_member(work, acme, f"{role}@a.example", role, "github", BY_OPERATOR)
            cookies[role] = await issue_cookie(work, acme, who, BY_OPERATOR)
    return cookies


@contextmanager
def serve_acme(folder: Path, fill: Fill | None = None) -> Iterator[Place]:
    """A server over a fresh data dir in `folder`, with acme, its members and what `fill` adds."""
    home = Home(folder)
    try:
        home.change(add_acme)
        cookies = home.change(_cookies)
        if fill is not None:
            home.change(fill)
        yield Place(home.serve(), cookies)
    finally:
        home.end()


@dataclass
class Visits:
    """Opens pages for members, and hears what the browser complains of."""

    place: Place
    browser: Browser
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def __call__(self, query: str = "", role: str = "auditor", **options: Any) -> Page:
        context = self.browser.new_context(**{"viewport": WIDE, **options})
        self.contexts.append(context)
        context.add_cookies(
            [
                {
                    "name": "admin_session",
                    "value": self.place.cookies[role],
                    "url": self.place.server.url,
                }
            ]
        )
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(query if query.startswith("http") else self.place.audit + query)
        return page


@pytest.fixture
def visit(place: Place, browser: Browser) -> Iterator[Visits]:
    visits = Visits(place, browser)
    yield visits
    for context in visits.contexts:
        context.close()
    assert visits.complaints == [], "a script ran that is not ours, or a policy was tripped over"


def search(page: Page, text: str) -> None:
    page.get_by_label("Search", exact=True).fill(text)
    page.keyboard.press("Enter")
