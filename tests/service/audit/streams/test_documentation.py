"""What docs/streams.md tells receivers to do."""

import json
import re
import threading
import time
from http.server import HTTPServer
from typing import Any

import duckdb
import pytest
import yaml

from service.core.settings import REPOSITORY
from tests.service.audit.streams.receivers import deliver_all, deliver_until, receiving
from tests.service.audit.streams.test_delivery import accept, all_ids

PAGE = (REPOSITORY / "docs" / "streams.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.parametrize("is_complete", [True, False])
async def test_the_query_for_duckdb_finds_what_is_missing(
    streams, tmp_path, monkeypatch, is_complete
):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url)
        for hour in range(2):
            await accept(streams, 5)
            await deliver_all(streams.services, stream_id)
            streams.clock.advance(hours=1)
            await deliver_until(streams.services, lambda hour=hour: len(receiver.records) > hour)
    entries = [entry for request in receiver.kept for entry in request.entries]
    if not is_complete:
        entries.pop(2)
    (tmp_path / "rows").mkdir()
    lines = "".join(f"{json.dumps(entry)}\n" for entry in [*entries, *entries[:3]])
    (tmp_path / "rows" / "all.ndjson").write_text(lines)
    monkeypatch.chdir(tmp_path)
    checked = duckdb.sql(block("sql")).fetchall()
    assert len(checked) == 2
    assert [line[4] for line in checked] == [is_complete, True]
    assert [line[2] == line[3] for line in checked] == [is_complete, True]


def test_the_collector_of_the_page_listens_where_rows_are_sent():
    """Each of its pipelines has parts that are declared; the rest is what a collector checks."""
    collector = yaml.safe_load(block("yaml"))
    endpoint = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert f"`https://HOST:{endpoint.rpartition(':')[2]}/v1/logs`" in PAGE
    for kind, pipeline in collector["service"]["pipelines"].items():
        assert kind == "logs"
        assert set(pipeline["receivers"]) == set(collector["receivers"])
        assert set(pipeline["exporters"]) == set(collector["exporters"])


async def test_the_webhook_of_the_page_takes_what_is_signed(streams, monkeypatch):
    names: dict[str, Any] = {"__name__": "webhook"}
    monkeypatch.setenv("WEBHOOK_SECRET", "whsec_")
    exec(block("python"), names)  # noqa: S102 - the page's own code
    monkeypatch.setattr(time, "time", lambda: streams.clock().timestamp())
    monkeypatch.setattr(names["Receiver"], "log_message", lambda *_: None)
    server = HTTPServer(("127.0.0.1", 0), names["Receiver"])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"
    created = await streams.call("POST", name="x", kind="webhook", url=url, after="start")
    refused = await streams.call("POST", f"/{created['id']}/test")
    names["KEY"] = names["base64"].b64decode(created["secret"].removeprefix("whsec_"))
    await deliver_all(streams.services, created["id"])
    server.shutdown()
    thread.join()
    server.server_close()
    assert not refused["accepted"]
    assert [*names["rows"]] == await all_ids(streams)
