"""A compliance officer exports rows, keeps the receipt, and compares a file, in a real browser."""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessible import PHONE, WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium, with_and_without_scripts
from tests.browser.visits import Place, Visits, serve_acme, visit  # noqa: F401 - a fixture
from tests.budgets import budget, only_full
from tests.polling import eventually
from tests.processes.exports import ROWS_A_DAY, add_history

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Acme with a long audit log: its file is read in several pieces."""
    history = partial(add_history, rows_a_day=budget(400, ROWS_A_DAY))
    with serve_acme(tmp_path_factory.mktemp("exports"), history) as place:
        yield place


def download(page: Page, name: str, folder: Path) -> Path:
    """What a click on this link saves."""
    with page.expect_download() as started:
        page.get_by_role("link", name=name, exact=True).click()
    path = folder / started.value.suggested_filename
    started.value.save_as(path)
    return path


@with_and_without_scripts
def test_a_file_is_exported_and_compared_with_its_receipt(
    visit: Visits,  # noqa: F811 - a fixture
    tmp_path: Path,
    has_scripts: bool,
) -> None:
    page = visit("?last=90d", java_script_enabled=has_scripts, accept_downloads=True)
    page.locator("[data-exports] summary").click()
    page.get_by_role("link", name="What the file will hold").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Export rows")
    saved = download(page, "CSV, unguarded", tmp_path)
    content = saved.read_bytes()
    page.get_by_role("link", name="Exports", exact=True).first.click()
    row = page.locator("tbody tr").first
    # Its last byte arrives a moment before its end is recorded.
    eventually(lambda: page.reload() and "finished" in row.inner_text(), "the export is finished")
    expect(row).to_contain_text("auditor@a.example")
    row.get_by_role("link").click()

    receipt = json.loads(download(page, "Download the receipt", tmp_path).read_text())
    assert receipt["sha256"] == hashlib.sha256(content).hexdigest()
    assert receipt["bytes"] == len(content) > 10_000_000
    assert receipt["file_name"] == saved.name
    expect(page.locator("main")).to_contain_text(f"sha256sum {saved.name}")
    field = page.get_by_label("The file, or several")
    if not has_scripts:
        expect(field).to_be_hidden()
        return

    result = page.locator("[data-verify-result]")
    field.set_input_files(saved)
    expect(result).to_have_text(
        f"{saved.name} is the exported file: size and SHA-256 are the same.", timeout=30_000
    )
    changed = tmp_path / "changed.csv"
    changed.write_bytes(content[:12_345] + bytes([content[12_345] ^ 1]) + content[12_346:])
    field.set_input_files(changed)
    expect(result).to_contain_text("changed.csv is NOT the exported file: its size", timeout=30_000)
    expect(result).to_contain_text(hashlib.sha256(changed.read_bytes()).hexdigest())
    short = tmp_path / "short.csv"
    short.write_bytes(content[:-1])
    field.set_input_files(short)
    expect(result).to_contain_text(
        f"short.csv is NOT the exported file: it has {len(content) - 1:,} bytes"
    )


@only_full
def test_a_running_export_shows_that_it_goes_on_and_how_it_ends(visit: Visits) -> None:  # noqa: F811
    with visit.place.server.client() as client:
        path = "/api/v1/admin/orgs/acme/audit/export?format=json"
        with client.stream("GET", path) as response:
            export_id = response.headers["x-export-id"]
            rows = int(response.headers["x-row-count"])
            pieces = response.iter_raw()
            next(pieces)
            page = visit(f"{visit.place.overview}/exports/{export_id}")
            expect(page.get_by_role("heading", name="Running")).to_be_visible()
            expect(page.get_by_role("status")).to_contain_text(f"of {rows:,} rows sent")
            expect(page.locator("progress")).not_to_have_attribute("value", "0", timeout=20_000)
            expect_no_violations(page)
        expect(page.get_by_role("alert")).to_contain_text("broke off", timeout=20_000)


@only_full
def test_the_pages_can_be_used_by_all(visit: Visits) -> None:  # noqa: F811 - a fixture
    with visit.place.server.client() as client:
        answer = client.get("/admin/ui/orgs/acme/audit/export?format=parquet&event=org_created")
        export_id = answer.headers["x-export-id"]
    for path in ("exports", f"exports/{export_id}", "exports/new?package=@acme/*"):
        page = visit(f"{visit.place.overview}/{path}")
        for size in (WIDE, PHONE):
            page.set_viewport_size(size)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                expect_no_violations(page)
