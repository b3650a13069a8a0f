"""`countersign bindings explain`: the reason in a terminal, and an exit code for scripts."""

import json
import subprocess

import pytest

from tests.conftest import ISSUER
from tests.processes.command_line import Ran

pytestmark = pytest.mark.slow

MAIN = "repo:acme/payments:ref:refs/heads/main"
EXPLAIN = ("bindings", "explain", "--org", "acme")
GOOD = {
    "iss": ISSUER,
    "aud": "countersign",
    "sub": MAIN,
    "repository_owner": "acme",
    "repository_id": "42",
    "event_name": "push",
    "exp": 4_000_000_000,
}


@pytest.fixture
def bound(home):
    """Acme trusts pushes to main."""
    add = ("bindings", "add", "--org", "acme", "--issuer", ISSUER, "--sub", MAIN)
    home.ask(*add, "--repository-id", "42", "--event", "push")
    return home


def claims_of(home, **changes) -> str:
    """The name of a file with good claims and `changes`."""
    file = home.folder / "claims.json"
    file.write_text(json.dumps(GOOD | changes))
    return str(file)


def piped(home, text: str, *words: str) -> Ran:
    """The command with `text` on its standard input."""
    return home.order(*EXPLAIN, *words, given=text.encode())


def test_what_passes_ends_with_0_and_what_does_not_with_1(bound):
    good = bound.order(*EXPLAIN, "--claims", claims_of(bound))
    bad = bound.order(*EXPLAIN, "--claims", claims_of(bound, aud="x"), "--json")

    assert (good.code, good.err) == (0, "")
    assert "Trusted by obind_" in good.out
    assert "if the issuer has signed it" in good.out
    assert (bad.code, bad.json["code"]) == (1, "bad_audience")


def test_a_caret_stands_below_the_character_that_differs(bound):
    sub = MAIN.replace("main", "Main")

    out = bound.order(*EXPLAIN, "--claims", claims_of(bound, sub=sub)).out

    lines = out.splitlines()
    found = next(line for line in lines if line.startswith("  found"))
    caret = lines[lines.index(found) + 1]
    assert found[caret.index("^")] == "M"
    assert "U+004D LATIN CAPITAL LETTER M" in caret
    assert "only upper and lower case differ" in caret
    assert "Nearest: obind_" in out


def test_the_draft_is_a_line_to_paste_that_replaces_the_binding(bound):
    out = bound.order(*EXPLAIN, "--claims", claims_of(bound, event_name="it's")).out

    (listed,) = bound.listed("bindings", "list", "--org", "acme")
    assert f'/oidc-bindings/{listed["id"]}/replace"' in out
    assert "jobs of acme (repository 42)" in out
    body = next(line for line in out.splitlines() if line.startswith("    -d "))
    shown = subprocess.run(["bash", "-c", f"printf %s {body[7:]}"], capture_output=True, check=True)
    assert json.loads(shown.stdout)["event_names"] == ["push", "it's"]


def test_a_terminal_is_told_nothing_by_a_token(bound):
    hostile = "repo:\x1b[31m\r\n\u202e\u200b\x07"

    ran = bound.order(*EXPLAIN, "--claims", claims_of(bound, sub=hostile, repository_owner=hostile))

    assert ran.code == 1
    assert not set("\x1b\r\u202e\u200b\x07") & set(ran.out)
    assert r"\x1b[31m" in ran.out


def test_a_token_comes_by_standard_input(bound):
    """Arguments are visible to other users."""
    assert "malformed_jwt" in piped(bound, "abc\n").out
    assert "missing_token" in piped(bound, "\n", "--token-file", "-").out
    assert piped(bound, json.dumps(GOOD), "--claims", "-").code == 0
    assert piped(bound, "", "token").code == 2


def test_a_project_may_be_named(bound):
    bound.ask("project", "add", "--org", "acme", "payments")
    claims = claims_of(bound)

    assert bound.order(*EXPLAIN, "--claims", claims, "--project", "payments").code == 0
    missing = bound.order(*EXPLAIN, "--claims", claims, "--project", "missing")
    assert "Project not found" in missing.refusal


def test_what_cannot_be_explained_is_refused_in_one_line(bound):
    long = bound.folder / "long"
    long.write_text("a" * 70_000)

    assert "over 65536 bytes" in bound.order(*EXPLAIN, "--token-file", str(long)).refusal
    both = (*EXPLAIN, "--token-file", "a", "--claims", "b")
    assert bound.order(*both).refusal == "give either --token-file or --claims"
    assert "No such file" in bound.order(*EXPLAIN, "--claims", "/nowhere").refusal
