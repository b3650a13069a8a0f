"""What other sites can make a signed-in person's browser do: nothing, whatever they try."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import needs_chromium
from tests.budgets import only_full
from tests.processes.homes import Home, Server, add_acme, owner_cookie

pytestmark = [*needs_chromium, only_full]

AUDIT = "/admin/ui/orgs/acme/audit"


class Elsewhere:
    """Another site, that serves one page: `html`."""

    def __init__(self) -> None:
        site = self
        self.html = ""

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(site.html.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    site = Elsewhere()
    yield site
    site.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server of acme's, and the session cookie of its owner."""
    home = Home(tmp_path_factory.mktemp("ours"))
    try:
        home.change(add_acme)
        cookie = home.change(owner_cookie)
        yield home.serve(), cookie
    finally:
        home.end()


@pytest.fixture
def context(server: tuple[Server, str], browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    ours, cookie = server
    context.add_cookies(
        [{"name": "admin_session", "value": cookie, "url": ours.url, "sameSite": "Lax"}]
    )
    yield context
    context.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["other port", "other site"])
def test_a_form_of_another_origin_changes_nothing(
    context: BrowserContext, server: tuple[Server, str], elsewhere: Elsewhere, host: str
) -> None:
    """From the same host the cookie comes along; the origin tells them apart."""
    ours, _ = server
    elsewhere.html = f"""<!doctype html><form method="post" action="{ours.url}/sign-out">
        <button>You have won</button></form>"""
    page = context.new_page()
    page.goto(f"http://{host}:{elsewhere.port}/")
    with page.expect_response(f"{ours.url}/sign-out") as answer:
        page.get_by_role("button").click()

    assert answer.value.status == (403 if host == "127.0.0.1" else 401)
    response = page.goto(f"{ours.url}{AUDIT}")
    assert response is not None
    assert response.status == 200
    expect(page.get_by_role("heading", level=1)).to_have_text("Audit log")


def test_no_page_of_ours_can_be_framed(
    context: BrowserContext, server: tuple[Server, str], elsewhere: Elsewhere
) -> None:
    """No visitor can be made to press a hidden button."""
    ours, _ = server
    elsewhere.html = f"""<!doctype html><iframe src="{ours.url}{AUDIT}"></iframe>
        <iframe src="{ours.url}/sign-in?token=abc"></iframe>"""
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"http://127.0.0.1:{elsewhere.port}/", wait_until="networkidle")

    frames = page.frames[1:]
    assert len(frames) == 2
    for frame in frames:
        assert frame.locator("main").count() == 0
    assert len([text for text in said if "frame-ancestors" in text]) == 2


def test_another_origin_reads_nothing(
    context: BrowserContext, server: tuple[Server, str], elsewhere: Elsewhere
) -> None:
    """From the same host the cookie comes along."""
    ours, _ = server
    elsewhere.html = "<!doctype html>"
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{elsewhere.port}/")

    assert _fetched(page, f"{ours.url}/api/v1/admin/orgs/acme/audit") == "refused"
    assert _fetched(page, f"http://127.0.0.1:{elsewhere.port}/") == "<!doctype html>"


def _fetched(page: Page, url: str) -> str:
    """What a script of the page reads at `url`, with cookies."""
    return str(
        page.evaluate(
            "url => fetch(url, {credentials: 'include'}).then(one => one.text(), () => 'refused')",
            url,
        )
    )
