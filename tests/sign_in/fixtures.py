"""The identity provider as tests see it."""

import subprocess
import sys
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import msgspec

from service.settings import REPOSITORY, Settings
from tests.sign_in.server import CLIENT_ID, CLIENT_SECRET, TENANT

ANSWER_S = 30.0
"""How long anything may take that should take no time: this machine may be busy."""

PROVIDERS = ("google", "github", "microsoft")


class ProviderProcess:
    """A running identity provider with nothing wrong with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sign_in.server"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=ANSWER_S)

    def be(self, **state: Any) -> None:
        """From now on have this state; see the server for what there is."""
        self._order(**state)

    def reset(self) -> None:
        """Be a good provider again."""
        self._order(reset=True)

    def requests(self) -> list[str]:
        """The paths it was asked for so far."""
        return list(self._order()["requests"])

    def approve(self, url: str) -> dict[str, str]:
        """Go to the authorization `url` as a browser would; the query it is sent back with."""
        answer = self._http.get(url)
        assert answer.status_code == 302, f"{url} answered {answer.status_code}"
        return dict(parse_qsl(urlsplit(answer.headers["location"]).query))

    def settings(self, *names: str) -> dict[str, str]:
        """The settings under which the service knows it as the providers `names`."""
        values = {"google_issuer": self.url, "github_url": self.url, "microsoft_url": self.url}
        for name in names or PROVIDERS:
            values |= {f"{name}_client_id": CLIENT_ID, f"{name}_client_secret": CLIENT_SECRET}
        values["microsoft_tenant"] = TENANT
        return {f"oauth_{name}": value for name, value in values.items()}

    def known_to(self, settings: Settings, *names: str, **more: str) -> Settings:
        """`settings` with it as the providers `names`, or as all of them."""
        return msgspec.structs.replace(settings, **(self.settings(*names) | more))

    def stop(self) -> None:
        """End it; its port answers nobody any more."""
        self._http.close()
        self._process.communicate()

    def _order(self, **order: Any) -> Any:
        answer = self._http.post("/order", json=order)
        assert answer.status_code == 200
        return answer.json()
