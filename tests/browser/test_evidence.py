"""Rows and receipts are proved on their pages, by the browser itself."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from service.app.composition import Services
from service.store.journal import append
from service.store.organisations import get_org
from tests.analytics.samples import sample_row
from tests.browser.accessible import PHONE, WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium, with_and_without_scripts
from tests.browser.visits import Place, Visits, serve_acme, visit  # noqa: F401 - a fixture
from tests.budgets import sample

pytestmark = needs_chromium
RESULT = "[data-prove-result]"


async def signed_rows(services: Services) -> None:
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        rows = [
            sample_row(work.now, version=str(n), subject="é\N{LINE SEPARATOR}<b>")
            for n in range(700)
        ]
        await append(work.session, acme.id, rows, now=work.now)
    await services.checkpointer.take_in()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("evidence"), signed_rows) as place:
        yield place


def open_proof(page: Page) -> None:
    href = page.locator("a.open").first.get_attribute("href")
    page.goto(f"{page.url.split('/admin')[0]}{href}")
    page.get_by_role("link", name="Prove it").click()


@with_and_without_scripts
def test_a_row_is_proved_on_its_page(visit: Visits, has_scripts: bool) -> None:  # noqa: F811
    page = visit("?event=blocklist_hit", java_script_enabled=has_scripts)
    open_proof(page)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Proof of aud_")
    commands = page.get_by_label("Commands")
    expect(commands).to_contain_text("countersign evidence verify proof.zip --policy policy.txt")
    if not has_scripts:
        expect(page.locator(RESULT)).to_contain_text("Without them, use the command below")
        return
    expect(page.locator(RESULT)).to_have_text(
        re.compile(
            r"^Verified in this browser: this row, byte for byte, is number \d+ of the \d+ rows"
        )
    )
    for size in (WIDE, PHONE):
        page.set_viewport_size(size)
        expect_no_violations(page)


@sample(2)
@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("left-pad", "left-pat", "the proof leads to another root"),
        ("&#34;nonce&#34;:&#34;", "&#34;nonce&#34;:&#34;0", "the proof leads to another root"),
        ("index ", "index 1", "proof"),
    ],
)
def test_a_proof_that_the_server_changed_is_not_verified(
    visit: Visits,  # noqa: F811
    wrong: str,
    right: str,
    said: str,
) -> None:
    """The browser believes nothing that it cannot compute."""

    def change(route: Route) -> None:
        answer = route.fetch()
        text = answer.text()
        assert wrong in text
        route.fulfill(response=answer, body=text.replace(wrong, right))

    page = visit("?event=blocklist_hit")
    page.route("**/proof", change)
    open_proof(page)
    expect(page.locator(RESULT)).to_have_text(re.compile(rf"^NOT verified\. .*{said}"))


def test_a_receipt_is_proved_on_the_page_of_its_export(
    visit: Visits,  # noqa: F811
    tmp_path: Path,
) -> None:
    page = visit("?event=blocklist_hit", accept_downloads=True)
    page.locator("[data-exports] summary").click()
    page.get_by_role("link", name="What the file will hold").click()
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV, unguarded", exact=True).click()
    started.value.save_as(tmp_path / "rows.csv")
    page.get_by_role("link", name="Exports", exact=True).first.click()
    page.locator("tbody tr").first.get_by_role("link").click()
    expect(page.locator(RESULT)).to_have_text(
        re.compile(r"^Verified in this browser: .+ signed this receipt of 700 rows, when the log")
    )
    expect_no_violations(page)

    def change(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace('"rows": 700', '"rows": 699'))

    page.route("**/receipt", change)
    page.reload()
    expect(page.locator(RESULT)).to_have_text(
        re.compile(r"^NOT verified\. The signature of .+ is wrong")
    )
