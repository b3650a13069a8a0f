"""`countersign` on a server that answers as Countersign does, but with what no server should send.

A login may lead to a server of another version, to one that was taken over, or to one whose rows
were written by an attacker: none of them may crash the program or write to the terminal itself.
"""

import gzip
import json
import re
import stat
from functools import partial
from typing import Any

import pytest

from analytics.model.schema import AUDIT_SCHEMA
from service.cli import client
from tests.budgets import only_full
from tests.processes.strange_servers import Strange, strange_server

pytestmark = pytest.mark.slow

REFUSED, FOUND = 1, 1
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u200b\r\n\tx"
OURS = {"x_request_id": "req_1", "content_type": "application/json"}

COMMANDS = {
    "query": ("audit", "query"),
    "show": ("audit", "show", "aud_1"),
    "exports": ("audit", "exports", "list"),
    "export": ("audit", "exports", "show", "exp_1"),
    "receipt": ("audit", "exports", "receipt", "exp_1"),
    "bindings": ("bindings", "list"),
    "binding": ("bindings", "show", "obind_1"),
    "create": ("bindings", "create", "--issuer", "https://a.example", "--sub", "x"),
    "rejected": ("bindings", "rejected"),
    "explain": ("explain",),
}


def sends(body: bytes, at: Strange, **headers: str) -> None:
    """Answer everything with `body`, as Countersign would."""
    at.reply(200, body, **OURS | headers)


def order(desk, words, answer, **options: str):
    """What a command with an API key says to a server that answers so."""
    with strange_server(answer) as (url, _):
        variables = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": "cs_secret"}
        return desk.order(*words, "--org", "acme", **variables, **options)


def evil_answer() -> dict[str, Any]:
    """The members of every answer, each text of which is hostile."""
    row = dict.fromkeys((*AUDIT_SCHEMA.names, "id", "packageName", "payload"), EVIL)
    row |= {"payload": {EVIL: {EVIL: EVIL}}}
    binding = dict.fromkeys(
        ("id", "subPattern", "repositoryId", "origin", "addedAt", "revokedAt", "addedBy"), EVIL
    )
    export = dict.fromkeys(
        ("id", "started_at", "actor", "format", "rows", "bytes", "state", "sha256"), EVIL
    )
    proposal = {"review": EVIL, "replaces": EVIL, "body": {"a": EVIL}, "beside": {"a": EVIL}}
    rejected = dict.fromkeys(
        ("code", "detail", "subject", "repositoryId", "eventName", "count", "lastAt"), EVIL
    )
    near = dict.fromkeys(("id", "state", "why", "subPattern"), EVIL) | {"difference": None}
    rule = dict.fromkeys(("rule", "name", "found", "note", "expected"), EVIL)
    return {
        **row,
        **binding,
        **export,
        "entries": [row],
        "next_cursor": EVIL,
        "exports": [export],
        "bindings": [binding],
        "rejected": [rejected | {"verified": True, "proposal": proposal}],
        "passes": False,
        "code": EVIL,
        "detail": EVIL,
        "reason": EVIL,
        "rules": [rule | {"status": "failed", "difference": None}] * 3,
        "nearest": [near],
        "proposal": proposal,
        "filters": {EVIL: [EVIL]},
    }


@pytest.mark.parametrize(
    "name", ["query", "show", "exports", "export", "bindings", "binding", "create", "rejected"]
)
@pytest.mark.parametrize("is_exact", [True, False])
def test_no_value_of_an_answer_reaches_the_terminal_as_a_command(desk, name, is_exact):
    """Escape sequences could clear the screen, or turn a row into another one."""
    words = (*COMMANDS[name], *(("--utc",) if is_exact else ()))
    ran = order(desk, words, partial(sends, json.dumps(evil_answer()).encode()))

    assert ran.code == 0, ran.err
    assert not unprintable(ran.out + ran.err)
    assert "owned" in ran.out


def test_no_value_of_an_explanation_reaches_the_terminal_as_a_command(desk):
    answer = partial(sends, json.dumps(evil_answer()).encode())
    ran = order(desk, ("explain",), answer, given="a.b.c")

    assert (ran.code, unprintable(ran.out + ran.err)) == (FOUND, set())
    assert "owned" in ran.out


def test_no_error_of_a_server_reaches_the_terminal_as_a_command(desk):
    body = json.dumps({"error": EVIL}).encode()
    ran = order(desk, COMMANDS["query"], lambda at: at.reply(400, body, **OURS))

    assert (ran.code, unprintable(ran.err)) == (REFUSED, set())
    assert "owned" in ran.refusal


SHELL = "x$(reboot)`reboot`;reboot"


@pytest.mark.parametrize("name", ["query", "exports", "rejected"])
def test_a_command_to_paste_runs_nothing_else(desk, name):
    """Ids and cursors of a server become arguments."""
    body = json.dumps(evil_answer()).replace(json.dumps(EVIL), json.dumps(SHELL)).encode()
    ran = order(desk, (*COMMANDS[name], "--utc"), partial(sends, body))
    pasted = [line for line in ran.out.splitlines() if "--cursor" in line or "curl" in line]

    assert ran.code == 0, ran.err
    assert any("reboot" in line for line in pasted)
    for line in pasted:
        assert "reboot" not in re.sub(r"'[^']*'", "", line)


def test_a_redirect_names_no_host_that_a_shell_would_act_on(desk):
    ran = order(desk, COMMANDS["query"], lambda at: at.reply(307, location=f"https://{SHELL}/"))

    assert ran.code == REFUSED
    assert "redirects to another page" in ran.refusal
    assert "reboot" not in ran.refusal


def unprintable(text: str) -> set[str]:
    """The characters of `text` that a terminal would interpret."""
    return {c for c in text if not c.isprintable() and c != "\n"}


def test_a_receipt_on_a_terminal_stays_json(desk):
    texts = ("org", "tenant_id", "export_id", "actor", "actor_source", "file_name", "version")
    numbers = dict.fromkeys(("receipt", "watermark", "rows", "bytes"), 1)
    times = dict.fromkeys(("started_at", "finished_at"), "2026-03-04T12:00:00.123456Z")
    nothing = dict.fromkeys(("compress", "since", "until", "retention_floor"))
    receipt = {
        **dict.fromkeys(texts, EVIL),
        **numbers,
        **times,
        **nothing,
        "format": "csv",
        "raw": False,
        "filters": {EVIL: [EVIL]},
        "sha256": "0" * 64,
    }
    ran = order(desk, COMMANDS["receipt"], partial(sends, json.dumps(receipt).encode()))

    assert ran.code == 0, ran.err
    assert not unprintable(ran.out)
    assert json.loads(ran.out) == receipt


def test_an_answer_without_an_end_is_not_read_to_it(desk, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_BYTES_MAX", 100_000)
    long = b'{"entries":[' + b" " * 200_000
    packed = partial(sends, gzip.compress(long), content_encoding="gzip")

    for answer in (partial(sends, long), packed, lambda at: at.reply(500, long, **OURS)):
        ran = order(desk, COMMANDS["query"], answer)
        assert ran.code == REFUSED
        assert "answers with more than" in ran.refusal


def test_deep_json_is_no_answer(desk):
    """Reading it would take more stack than there is."""
    ran = order(desk, COMMANDS["query"], partial(sends, b'{"entries":' + b"[" * 100_000))

    assert ran.code == REFUSED
    assert "is not a Countersign server" in ran.refusal


@pytest.mark.parametrize("status", [200, 206])
def test_an_export_with_headers_of_another_form_leaves_no_file(desk, tmp_path, status):
    words = ("audit", "export", "--format", "csv", str(tmp_path / "rows.csv"))
    ran = order(desk, words, lambda at: at.reply(status, b"id\n", x_row_count="many", **OURS))

    assert ran.code == REFUSED
    assert not (tmp_path / "rows.csv").exists()


CODES = {
    "device_code": "x",
    "user_code": EVIL,
    "verification_uri": EVIL,
    "expires_in": 600,
    "interval": 5,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"device_code": ...},
        {"expires_in": ...},
        {"expires_in": "soon"},
        {"expires_in": float("nan")},
        {"interval": []},
    ],
)
def test_codes_of_another_form_are_refused_before_they_are_shown(desk, changes):
    codes = {name: value for name, value in (CODES | changes).items() if value is not ...}
    with strange_server(partial(sends, json.dumps(codes).encode())) as (url, _):
        ran = desk.order("login", url)

    assert ran.code == REFUSED
    assert "answers in a form that this program does not know" in ran.refusal
    assert not desk.logins.exists()


@pytest.mark.parametrize(
    "token",
    [
        5,
        "csess_\nx-service-admin-token: 1",
        *(
            pytest.param(token, marks=only_full)
            for token in ("", "cs_key", "csess_ä", "csess_" + "x" * 5000)
        ),
    ],
)
def test_what_a_server_calls_a_session_is_stored_only_if_it_can_be_one(desk, token):
    """It becomes a header of all later requests."""

    def answer(at: Strange) -> None:
        is_token = at.path.endswith("/token")
        body = {"access_token": token} if is_token else CODES | {"interval": -100}
        sends(json.dumps(body).encode(), at)

    with strange_server(answer) as (url, _):
        ran = desk.order("login", url)

    assert ran.code == REFUSED
    assert not unprintable(ran.err)
    assert not desk.logins.exists()


def test_the_name_that_a_server_gives_its_user_is_shown_as_text(desk):
    who = {"actor": EVIL, "org": EVIL, "capabilities": [EVIL], "member": None}
    with strange_server(partial(sends, json.dumps(who).encode())) as (url, _):
        ran = desk.order("login", url, "--with-token", given="cs_secret")
        shown = desk.order("whoami")

    assert (ran.code, shown.code) == (0, 0)
    assert not unprintable(ran.out + ran.err + shown.out + shown.err)
    assert stat.S_IMODE(desk.logins.stat().st_mode) == 0o600
    assert stat.S_IMODE(desk.logins.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("who", [{}, {"org": []}, {"org": None}, {"org": None, "member": {}}])
def test_a_user_of_another_form_is_not_stored(desk, who):
    """The login would fail at every later command."""
    with strange_server(partial(sends, json.dumps(who).encode())) as (url, _):
        ran = desk.order("login", url, "--with-token", given="cs_secret")

    assert ran.code == REFUSED
    assert "answers in a form that this program does not know" in ran.refusal
    assert not desk.logins.exists()
