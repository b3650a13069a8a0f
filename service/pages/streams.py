"""The streams page: where rows are sent, how far each stream is, and a test of its receiver."""

from typing import Final, get_args

from quart import Blueprint
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.audit.services import AuditServices
from service.audit.streams.sinks import Format, SinkKind
from service.audit.streams.streams_api import (
    StreamEntry,
    change,
    create,
    delete,
    list_streams,
    send_test,
)
from service.pages.page import Form, FormState, IssuedSecret, Page, PageCall, View, page_post
from service.web.dependencies import group_of

blueprint = Blueprint("dashboard_streams", __name__, url_prefix="/admin/ui/orgs/<slug>/streams")

_KINDS: Final = [(kind, kind) for kind in get_args(SinkKind)]
_FORMATS: Final = [(name, name) for name in get_args(Format)]
_FIRST: Final = (("now", "new rows alone"), ("start", "all rows there are"))


@Page(
    blueprint,
    "",
    "streams.html",
    needs=Capability.STREAM_READ,
    done={
        "paused": "The stream is paused. It goes on where it was.",
        "active": "The stream goes on where it was.",
        "deleted": "The stream was deleted: no more rows are sent.",
    },
)
async def streams_page(call: PageCall) -> View:
    """The streams with their lag and the last answer of each receiver."""
    async with call.read() as session:
        streams = await list_streams(session, call.org)
    snapshot, now = await call.services.store.snapshot(call.org.id), call.services.clock()
    entries = [StreamEntry.of(stream, snapshot, now) for stream in streams]
    return {
        "streams": entries,
        "kinds": _KINDS,
        "formats": _FORMATS,
        "first": _FIRST,
        "tested": None,
    }


def _created(_: PageCall, stream: StreamEntry) -> IssuedSecret:
    return IssuedSecret(stream.name, stream.secret or "")


streams_page.secret_form("", "create_stream", create, _created, field="name")
streams_page.form(
    "/<stream_id>/change",
    "change_stream",
    change,
    lambda stream: stream.state,
    fields=lambda form: {"state": form.get("state")},
)
streams_page.form("/<stream_id>/delete", "delete_stream", delete, "deleted")


@page_post(blueprint, "/<stream_id>/test", needs=Capability.STREAM_WRITE, name="test_stream")
async def show_test(call: PageCall, form: Form, stream_id: str) -> ResponseReturnValue:
    """What the receiver of a stream answers to a test, above the streams. Raises NotFound."""
    tested = await send_test(group_of(AuditServices), call.org, stream_id)
    return await streams_page.show(call, FormState(), {}, tested=tested)
