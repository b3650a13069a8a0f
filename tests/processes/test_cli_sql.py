"""`countersign audit sql`, and the same and more as tools of `countersign mcp`."""

import json

import pytest

pytestmark = pytest.mark.slow

SQL = ("audit", "sql", "--org", "acme")


def test_an_answer_is_a_table_or_json(home):
    table = home.order(*SQL, "SELECT 'a' AS name, 1 AS n")
    given = home.order(*SQL, "--json", given=b"SELECT 1 AS n")

    assert [line.split() for line in table.out.splitlines()][-2:] == [["name", "n"], ["a", "1"]]
    assert given.json["rows"] == [[1]]
    assert "sql must be one SELECT statement" in home.order(*SQL, "DROP VIEW audit").refusal


def test_a_file_is_written_whole(home):
    target = home.folder / "rows.csv"
    ran = home.order(*SQL, "SELECT 5 AS n", "--format", "csv", "-o", str(target))

    assert target.read_text() == "n\n5\n"
    assert "Exported 1 rows" in ran.out


def answers_to(home, *messages):
    """What `countersign mcp` answers to `messages`, in the order of the answers."""
    lines = [
        message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0"} | message)
        for message in messages
    ]
    ran = home.order("mcp", "--org", "acme", given="\n".join(lines).encode())
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def talk(home, *messages):
    """The answers by their ids."""
    return {answer["id"]: answer for answer in answers_to(home, *messages)}


def call(number, name, **arguments):
    params = {"name": name, "arguments": arguments}
    return {"id": number, "method": "tools/call", "params": params}


def test_an_assistant_finds_tools_that_change_nothing(home):
    answers = talk(
        home,
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}},
        {"method": "notifications/initialized"},
        {"id": "two", "method": "tools/list"},
        {"id": 3, "method": "ping"},
        {"id": 4, "method": "initialize", "params": {"protocolVersion": "1999-01-01"}},
    )

    assert answers.keys() == {1, "two", 3, 4}
    assert answers[4]["result"]["protocolVersion"] == "2025-11-25"
    assert answers[1]["result"]["protocolVersion"] == "2025-03-26"
    tools = answers["two"]["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["search", "summary", "explain", "sql"]
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)


def test_tools_answer_what_the_api_answers(home):
    answers = talk(
        home,
        call(1, "sql", sql="SELECT 1 AS n"),
        call(2, "search", event=["org_created", "member_added"], limit=1),
        call(3, "summary", bucket="hour"),
        call(4, "explain", claims={"sub": "repo:acme/x"}),
    )

    assert answers[1]["result"]["structuredContent"]["rows"] == [[1]]
    assert len(answers[2]["result"]["structuredContent"]["entries"]) == 1
    assert answers[3]["result"]["structuredContent"]["bucket"] == "hour"
    assert answers[4]["result"]["structuredContent"]["passes"] is False
    for answer in answers.values():
        (text,) = answer["result"]["content"]
        assert json.loads(text["text"]) == answer["result"]["structuredContent"]


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("sql", {"sql": "ATTACH 'x'"}, "sql must be one SELECT statement"),
        ("sql", {}, "sql"),
        ("search", {"unknown": "x"}, "there is no argument unknown"),
        ("search", {"limit": True}, "limit must be a text or a list of texts"),
        ("search", {"limit": 1001}, "limit"),
        ("summary", {"since": "x"}, "since"),
        ("explain", {}, "token"),
    ],
)
def test_a_refusal_is_an_answer_that_says_why(home, name, arguments, text):
    result = talk(home, call(1, name, **arguments))[1]["result"]

    assert result["isError"] is True
    assert text in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("junk", -32700),
        ("[]", -32600),
        ({"id": 1, "method": "resources/list"}, -32601),
        ({"id": {}, "method": "ping"}, -32600),
        ({"id": 1, "method": "ping", "params": []}, -32600),
        (call(1, "delete_everything"), -32602),
        (call(1, ["sql"]), -32602),
    ],
)
def test_what_is_no_request_is_an_error(home, message, code):
    (answer,) = talk(home, message).values()

    assert answer["error"]["code"] == code
    number = message.get("id") if isinstance(message, dict) else None
    assert answer["id"] == (number or None)


def test_the_id_of_a_request_that_waits_for_its_answer_is_refused(home):
    """The second request would take the place of the first, which could not be cancelled then."""
    refusal, answer = answers_to(
        home, call(1, "sql", sql="SELECT 1 AS n"), {"id": 1, "method": "ping"}
    )

    assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
    assert (answer["id"], answer["result"]["structuredContent"]["rows"]) == (1, [[1]])


def test_null_is_an_argument_left_out(home):
    result = talk(home, call(1, "search", q=None, event=["org_created"]))[1]["result"]

    assert len(result["structuredContent"]["entries"]) == 1


def test_arguments_that_are_no_object_are_refused(home):
    bad = {"id": 1, "method": "tools/call", "params": {"name": "sql", "arguments": ["x"]}}

    assert talk(home, bad)[1]["result"]["isError"] is True
