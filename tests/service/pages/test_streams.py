"""The streams page: a stream is created, tested, paused and deleted, and its secret shown once."""

import msgspec
import pytest

from tests.conftest import running_world
from tests.service.audit.streams.conftest import LOCAL
from tests.service.audit.streams.receivers import receiving, refused
from tests.service.pages.page import ORG, Page, send_form
from tests.service.pages.people.desk import HOSTILE, fault_of, get, leads_to, logged, see

STREAMS = f"{ORG}/streams"


@pytest.fixture
async def world(settings, clock):
    """It may send to this machine."""
    allowed = msgspec.structs.replace(settings, stream_networks=LOCAL)
    async with running_world(allowed, clock) as world:
        yield world


async def created(world, **fields: str) -> Page:
    """The page after the form to create a stream was sent."""
    page = await see(world, "streams")
    form = {"name": "SIEM", "kind": "webhook", "after": "now", **fields}
    answer = await send_form(world, page, STREAMS, **form)
    return Page(await answer.get_data(as_text=True))


def action(page: Page, name: str) -> str:
    (path,) = [path for path in page.forms if path.endswith(f"/{name}")]
    return path


async def test_a_stream_is_created_tested_paused_and_deleted(world):
    async with receiving(lambda _: refused(503, b"<b>busy</b>")) as receiver:
        page = await created(world, url=receiver.url)
        secret = page.one("input", id="secret").attributes["value"]
        assert secret.startswith("whsec_")
        page = await see(world, "streams")
        assert secret not in page.html
        tested = await send_form(world, page, action(page, "test"))
        text = await tested.get_data(as_text=True)
    assert "503 &lt;b&gt;busy&lt;/b&gt;" in text
    assert "<b>busy" not in text
    paused = await send_form(world, page, action(page, "change"), state="paused")
    assert leads_to(paused).endswith("/streams?done=paused")
    deleted = await send_form(world, page, action(page, "delete"))
    assert leads_to(deleted).endswith("/streams?done=deleted")
    assert "No rows are sent anywhere." in (await see(world, "streams")).html
    assert [event for event, _, _ in await logged(world)][:3] == ["stream_changed"] * 3


async def test_faults_are_at_their_fields_and_typed_text_stays_but_no_secret(world):
    page = await created(world, kind="s3", url="https://s3.example/b", secret="no-colon")
    assert "secret must be" in fault_of(page, "stream-secret")
    assert page.one("input", id="stream-url").attributes["value"] == "https://s3.example/b"
    assert "no-colon" not in page.html
    page = await created(world, url="https://user@siem.example/rows")
    assert "url must be" in fault_of(page, "stream-url")


async def test_hostile_names_are_text(world):
    await created(world, name=HOSTILE, url="https://siem.example/rows")
    assert "<script>alert(1)" not in (await see(world, "streams")).html


async def test_only_owners_see_it(world):
    for who in ("auditor", "member"):
        assert (await get(world, "streams", who)).status_code == 403
