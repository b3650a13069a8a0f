"""`countersign mcp` as the official client of the Model Context Protocol uses it."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import pytest

from service.audit.sql_runs import CHILD
from service.core.settings import REPOSITORY
from tests.polling import HANG_S, until
from tests.proc_files import children, command
from tests.processes.homes import CLI, all_entries

mcp = pytest.importorskip("mcp", reason="needs the extra mcp, which `make test` installs")
pytestmark = pytest.mark.slow

ENDLESS = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"


@pytest.fixture
def server(home):
    return home.serve(sql_max_s="600")


@pytest.fixture
def assistant(home, server):
    """Connects a client to `countersign mcp`, which has an API key that only reads."""
    scopes = ("--scope", "audit:r", "--scope", "oidc:r")
    key = home.ask("apikey", "issue", "--org", "acme", "--name", "assistant", *scopes)
    login = {"COUNTERSIGN_SERVER": server.url, "COUNTERSIGN_TOKEN": key["secret"]}
    program = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", CLI, "mcp", "--org", "acme"],
        env=login | {"HOME": str(home.folder)},
        cwd=REPOSITORY,
    )

    @asynccontextmanager
    async def connected(**options):
        async with mcp.Client(program, read_timeout_seconds=HANG_S, **options) as client:
            yield client

    return connected


async def answer_of(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert result.is_error is False, result.content
    (text,) = result.content
    assert json.loads(text.text) == result.structured_content
    return result.structured_content


async def test_its_tools_answer_the_official_client(assistant):
    async with assistant() as client:
        assert client.server_info.name == "countersign"
        assert client.protocol_version == "2025-11-25"
        listed = await client.list_tools()
        created = "SELECT event FROM audit WHERE event = 'org_created'"
        sql = await answer_of(client, "sql", sql=created)
        events = ["org_created", "api_key_created"]
        search = await answer_of(client, "search", event=events, limit=1)
        summary = await answer_of(client, "summary", bucket="hour", event=["org_created"], q=None)
        explain = await answer_of(client, "explain", claims={"sub": "repo:acme/x"})

    assert [tool.name for tool in listed.tools] == ["search", "summary", "explain", "sql"]
    assert sql["rows"] == [["org_created"]]
    assert [row["event"] for row in search["entries"]] == ["api_key_created"]
    assert summary["total"] == 1
    assert explain["passes"] is False


WRONG = [
    ("search", {"q": {"a": 1}}, "q must be a text or a list of texts"),
    ("search", {"limit": 1001}, "limit must be an integer from 1 to 1000"),
    ("summary", {"bucket": "year"}, "bucket must be one of minute, hour, day"),
    ("explain", {"claims": ["x"]}, "claims must be a JSON object"),
    ("sql", {"sql": "SELECT 1", "format": "csv"}, "there is no argument format: use sql"),
    ("sql", {}, "sql is required"),
]


async def test_a_wrong_argument_is_an_answer_to_learn_from(assistant):
    async with assistant() as client:
        for name, arguments, text in WRONG:
            result = await client.call_tool(name, arguments)
            assert result.is_error is True
            assert text in result.content[0].text


async def test_a_cancelled_statement_ends_and_others_are_answered_meanwhile(assistant, server):
    def is_running():
        return any(CHILD.encode() in command(child) for child in children(server.process.pid))

    def outcomes():
        with server.client() as client:
            return [row["payload"]["outcome"] for row in all_entries(client, event="audit_sql_run")]

    async with assistant() as client:
        asked = asyncio.create_task(client.call_tool("sql", {"sql": ENDLESS}))
        await until(is_running)
        assert (await answer_of(client, "search", event=["org_created"]))["entries"]
        asked.cancel()
        await until(lambda: not is_running())
        await until(lambda: outcomes() == ["stopped"])


async def test_it_outlives_its_server(assistant, server):
    async with assistant() as client:
        await answer_of(client, "sql", sql="SELECT 1 AS n")
        server.stop()
        result = await client.call_tool("sql", {"sql": "SELECT 1 AS n"})

    assert result.is_error is True
    assert "cannot reach" in result.content[0].text
