"""Members with a browser and an authenticator of their own."""

from dataclasses import dataclass, field
from typing import Any

from service.core.header_names import SESSION_COOKIE
from tests.service.access.passkeys.authenticators import Authenticator
from tests.service.browsing import Browser
from tests.service.pages.page import Page

PROFILE = "/admin/ui/profile"
SIGN_IN = "/admin/ui/sign-in/passkey"


@dataclass
class Holder(Browser):
    """A member who holds passkeys, or could."""

    authenticator: Authenticator = field(default_factory=Authenticator)

    @property
    def is_signed_in(self) -> bool:
        """True if the browser keeps a session's cookie."""
        return SESSION_COOKIE in self.cookies

    def with_session_of(self, name: str) -> "Holder":
        """Be signed in as this member."""
        self.cookies[SESSION_COOKIE] = self.world.cookies[name]
        return self

    async def profile(self) -> Page:
        answer = await self.get(PROFILE)
        page = await answer.get_data(as_text=True)
        assert answer.status_code == 200, page
        return Page(page)

    async def csrf(self) -> str:
        return (await self.profile()).values("csrf")[0]

    async def begin_registration(self) -> dict[str, Any]:
        """Press the button; what the browser is to make."""
        answer = await self.post_json(f"{PROFILE}/passkeys/begin", {"csrf": await self.csrf()})
        assert answer.status_code == 200, await answer.get_data(as_text=True)
        return await answer.get_json()

    async def finish_registration(self, credential: Any, name: Any = "Laptop") -> Any:
        """The answer to what the browser has made."""
        body = {"csrf": await self.csrf(), "name": name, "credential": credential}
        return await self.post_json(f"{PROFILE}/passkeys/finish", body)

    async def register(self, name: str = "Laptop", **lies: Any) -> Any:
        """All of it; the answer to what the browser has made."""
        options = await self.begin_registration()
        return await self.finish_registration(self.authenticator.make(options, **lies), name)

    async def begin_sign_in(self) -> dict[str, Any]:
        """Press the button; what the browser is to prove."""
        answer = await self.post_json(f"{SIGN_IN}/begin", {})
        assert answer.status_code == 200, await answer.get_data(as_text=True)
        return await answer.get_json()

    async def finish_sign_in(self, credential: Any, **more: Any) -> Any:
        """The answer to what the browser proves."""
        return await self.post_json(f"{SIGN_IN}/finish", {"credential": credential} | more)

    async def sign_in(self, **lies: Any) -> Any:
        """All of it, signed out before; the answer to what the browser proves."""
        self.cookies.pop(SESSION_COOKIE, None)
        options = await self.begin_sign_in()
        return await self.finish_sign_in(self.authenticator.prove(options, **lies))

    async def failures(self) -> list[dict[str, Any]]:
        """The rows about failed sign-ins, newest first."""
        return await self.world.audit(event="sign_in_failed")
