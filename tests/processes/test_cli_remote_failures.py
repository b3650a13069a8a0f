"""`countersign` on a server that is none, that is away, or that says no."""

import socket

import pytest

from tests.processes.strange_servers import Strange, strange_server

pytestmark = pytest.mark.slow

REFUSED, UNAVAILABLE = 1, 3


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        ("ftp://x", "is not the address of a server"),
        ("https://", "is not the address of a server"),
        ("https://a.example/admin", "without /admin"),
        ("https://u:p@a.example", "is not the address of a server"),
        ("https://a.example:99999", "is not the address of a server"),
        ("http://a.example", "http:// would send the credential unprotected to a.example"),
        ("http://127.0.0.1.evil.example", "unprotected"),
    ],
)
def test_an_address_that_is_none_or_not_safe_is_refused(desk, url, refusal):
    ran = desk.order("login", url, "--with-token", given="cs_secret")

    assert ran.code == REFUSED
    assert refusal in ran.refusal
    assert not desk.logins.exists()


@pytest.mark.parametrize("secret", ["", "\n", "two words\nlines", "ä", "x" * 5000])
def test_what_is_no_token_is_refused(desk, server, secret):
    ran = desk.order("login", server.url, "--with-token", given=secret)

    assert ran.code == REFUSED
    assert not desk.logins.exists()


def test_a_wrong_token_is_not_stored(desk, server):
    for secret in ("cs_wrong", "wrong-admin-token", "csess_wrong"):
        ran = desk.order("login", server.url, "--with-token", given=secret)
        assert ran.code == REFUSED
        assert secret not in ran.err + ran.out
    assert not desk.logins.exists()


OURS = {"x_request_id": "req_1", "content_type": "application/json"}


@pytest.mark.parametrize(
    ("answer", "code", "refusal"),
    [
        (lambda at: at.reply(200, b"<html>"), REFUSED, "is not a Countersign server"),
        (lambda at: at.reply(200, b"{}"), REFUSED, "is not a Countersign server"),
        (lambda at: at.reply(404, b"no"), REFUSED, "is not a Countersign server"),
        (lambda at: at.reply(502, b"bad"), UNAVAILABLE, "the service behind it may be down"),
        (lambda at: at.reply(200, b"[]", **OURS), REFUSED, "is not a Countersign server"),
        (
            lambda at: at.reply(429, b'{"error":"too much"}', retry_after="7", **OURS),
            UNAVAILABLE,
            "too much; try again in 7 s",
        ),
        (lambda at: at.reply(503, b'{"error":"busy"}', **OURS), UNAVAILABLE, "busy"),
        (lambda at: at.connection.close(), UNAVAILABLE, "broke off"),
    ],
)
def test_what_a_server_answers_wrongly_is_one_clear_line(desk, answer, code, refusal):
    with strange_server(answer) as (url, _):
        variables = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": "cs_secret"}
        ran = desk.order("audit", "query", "--org", "acme", **variables)

    assert ran.code == code
    assert refusal in ran.refusal
    assert "cs_secret" not in ran.err


def test_a_redirect_takes_no_credential_anywhere(desk):
    """Neither to another server nor to another path of the same."""
    with strange_server(lambda at: at.reply(200, b"{}", **OURS)) as (other, got):
        where = f"{other}/api/v1/session?x=secret"
        with strange_server(lambda at: at.reply(307, location=where)) as (url, seen):
            variables = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": "cs_secret"}
            ran = desk.order("audit", "query", "--org", "acme", **variables)

    assert ran.code == REFUSED
    assert ran.refusal.startswith(f"{url} redirects to {other}: if that is your server")
    assert "x=secret" not in ran.err
    assert [headers["x-service-api-key"] for headers in seen] == ["cs_secret"]
    assert got == []


def test_a_server_that_cannot_be_reached_is_one_line(desk):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url, refusal in (
        (f"http://127.0.0.1:{port}", "cannot reach http://127.0.0.1:"),
        ("https://no.such.host.invalid", "cannot reach https://no.such.host.invalid"),
    ):
        variables = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": "cs_x"}
        ran = desk.order("audit", "query", "--org", "acme", **variables)
        assert ran.code == UNAVAILABLE
        assert refusal in ran.refusal
    with strange_server(lambda at: at.reply(200)) as (url, _):
        plain = url.replace("http://", "https://")
        ran = desk.order("login", plain, "--with-token", given="cs_x")
        assert ran.code == REFUSED
        assert "TLS failed" in ran.refusal


def test_an_export_that_breaks_off_leaves_no_file(desk, tmp_path):
    def cut(at: Strange) -> None:
        at.reply(200, b"id,created_at\n", x_row_count="2", **OURS | {"content_length": "100"})

    with strange_server(cut) as (url, _):
        variables = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": "cs_x"}
        words = ("audit", "export", "--org", "acme", "--format", "csv", str(tmp_path / "a.csv"))
        ran = desk.order(*words, **variables)

    assert (ran.code, "broke off" in ran.refusal) == (UNAVAILABLE, True)
    assert [path.name for path in tmp_path.iterdir()] == ["desk"]
