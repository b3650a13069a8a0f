"""A browser that keeps cookies, without pages or scripts: its steps are the test's."""

from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any

from tests.conftest import World

OWN = {"origin": "http://localhost:8080"}


@dataclass
class Browser:
    world: World
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **query: str) -> Any:
        """The answer to following a link."""
        return await self._send("get", path, query_string=query or None)

    async def post(self, path: str, headers: dict[str, str] = OWN, **form: str) -> Any:
        """The answer to sending a form from one of our own pages."""
        return await self._send("post", path, form=form, extra=headers)

    async def post_json(self, path: str, body: Any, headers: dict[str, str] = OWN) -> Any:
        """The answer to what a script of one of our own pages sends."""
        return await self._send("post", path, json=body, extra=headers)

    async def _send(
        self, method: str, path: str, extra: dict[str, str] | None = None, **more: Any
    ) -> Any:
        kept = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {**(extra or {}), **({"cookie": kept} if kept else {})}
        client = self.world.app.test_client(use_cookies=False)
        answer = await getattr(client, method)(path, headers=headers, **more)
        for line in answer.headers.getlist("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        return answer
