"""The identity provider as tests see it."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from service.core.settings import Settings
from tests.sign_in.server import CLIENT_ID, CLIENT_SECRET, TENANT
from tests.talking import TalkingProcess

PROVIDERS = ("google", "github", "microsoft")


class ProviderProcess(TalkingProcess):
    """A running identity provider with nothing wrong with it."""

    def __init__(self) -> None:
        super().__init__("tests.sign_in.server")

    def be(self, **state: Any) -> None:
        """From now on have this state; see the server for what there is."""
        self.tell("/order", **state)

    def reset(self) -> None:
        """Be a good provider again."""
        self.tell("/order", reset=True)

    def requests(self) -> list[str]:
        """The paths it was asked for so far."""
        return list(self.tell("/order")["requests"])

    def approve(self, url: str) -> dict[str, str]:
        """Go to the authorization `url` as a browser would; the query it is sent back with."""
        answer = self.http.get(url)
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
