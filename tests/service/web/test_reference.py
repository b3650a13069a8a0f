"""The lines to paste on the page of the API, sent as a shell would send them."""

import re
import shlex
from string import Template
from typing import Any

import pytest

from service.web.reference import curl, operations, rule
from tests.conftest import ADMIN_TOKEN, World

VARIABLES = {
    "URL": "",
    "ORG": "acme",
    "TOKEN": ADMIN_TOKEN,
    "KEY": "cs_wrong",
    "SESSION": "wrong",
    "METRICS_TOKEN": "wrong",
    "CI_TOKEN": "wrong",
    "IF_MATCH": "*",
    "FILE": "osv.zip",
    "REPOSITORY_ID": "123456789",
}


async def send(world: World, line: str) -> Any:
    """What the answer to a line is, its variables replaced; ids that nothing has."""
    names = re.findall(r"\$([A-Z_]+)", line)
    values = {name: f"{name.partition('_')[0].lower()}_1" for name in names} | VARIABLES
    words = shlex.split(Template(line.replace("\\\n", "")).safe_substitute(values))
    assert words.pop(0) == "curl"
    method, headers, bodies, url = "GET", {}, [], ""
    while words:
        word = words.pop(0)
        match word:
            case "-s":
                pass
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d" | "--data-binary":
                bodies.append(words.pop(0))
            case _:
                url = word
    if bodies and "content-type" not in headers:
        headers["content-type"] = "application/x-www-form-urlencoded"
    return await world.client.open(
        url, method=method, headers=headers, data="&".join(bodies) or None
    )


async def test_every_line_is_a_request_that_the_service_accepts(world: World) -> None:
    """What a request refuses is the state or an id that nothing has, never the line itself."""
    document = await (await world.client.get("/openapi.json")).get_json()
    refused = {}
    for method, path, operation in operations(document):
        line = curl(method, path, operation, document["components"]["schemas"])
        response = await send(world, line)
        if response.status_code in (400, 403, 405, 412, 413, 415, 500):
            refused[operation["operationId"]] = await response.get_data(as_text=True)

    assert refused == {
        "import_feed": '{"error":"not a usable zip file: it has no list of entries"}',
        "poll_device_sign_in": '{"error":"invalid_grant"}',
    }


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"^!?(npm|pypi)$", "one of `npm`, `pypi`; `!` before it leaves the value out"),
        (r"^0*[1-9][0-9]*$", "pattern `^0*[1-9][0-9]*$`"),
        (f"^[{'a' * 50}]$", ""),
    ],
)
def test_a_pattern_is_said_in_words(pattern: str, words: str) -> None:
    assert rule(pattern) == words
