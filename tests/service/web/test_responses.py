"""Errors as JSON: as short as other answers, and readable."""

import pytest

from service.web.responses import error_answer


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("not found", b'{"error":"not found"}'),
        ("a \u2014 b", '{"error":"a \u2014 b"}'.encode()),
        ('say "no"\n', b'{"error":"say \\"no\\"\\n"}'),
        ("\ud83d", b'{"error":"\\ud83d"}'),
        ("\U0001f600", '{"error":"\U0001f600"}'.encode()),
    ],
    ids=["plain", "dash", "quotes", "half of a pair", "beyond the first plane"],
)
async def test_an_error_is_compact_json_in_utf_8(text, body):
    """Only what UTF-8 cannot hold is escaped."""
    answer = error_answer(text, 400)

    assert await answer.get_data() == body
    assert answer.content_type == "application/json"
