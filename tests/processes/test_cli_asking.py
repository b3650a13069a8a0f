"""What asks before it changes anything, and what it does without anyone to ask."""

import signal

import pytest

from service.cli.commands import Command
from tests.conftest import ISSUER
from tests.other_programs import execute
from tests.processes.command_tree import every_command
from tests.processes.homes import Home, segment_of
from tests.processes.terminals import at_a_terminal
from tests.service.packages.policy.osv_files import osv_record, osv_zip

pytestmark = pytest.mark.slow

POLICY = 'deny = [{ ecosystem = "npm", package = "left-pad", id = "old" }]'
BINDINGS = f'issuer = "{ISSUER}"\n[[bindings]]\nsub_pattern = "repo:acme/b"\nrepository_id = "43"'
REVOKE = ("bindings", "revoke", "--repository-id", "42", "--issuer", ISSUER, "--org", "acme")
ASKING = {
    ("audit", "give-up"): ("audit", "give-up", "{segment}"),
    ("audit", "take-over"): ("audit", "take-over"),
    ("bindings", "revoke"): REVOKE,
    ("bindings", "sync"): ("bindings", "sync", "{folder}/bindings.toml", "--org", "acme"),
    ("blocklist", "import"): ("blocklist", "import", "{folder}/fewer.zip"),
    ("blocklist", "remove"): ("blocklist", "remove", "--feed", "osv"),
    ("evidence", "key", "rotate"): ("evidence", "key", "rotate"),
    ("evidence", "resume"): ("evidence", "resume", "--accept-rollback"),
    ("policy", "set"): ("policy", "set", "{folder}/policy.toml", "--org", "acme"),
}


@pytest.fixture
def ready(home: Home) -> Home:
    """A data dir on which each of the commands has something to ask."""
    add = ("bindings", "add", "--org", "acme", "--issuer", ISSUER, "--sub", "repo:acme/a")
    home.ask(*add, "--repository-id", "42")
    (home.folder / "policy.toml").write_text(POLICY)
    (home.folder / "bindings.toml").write_text(BINDINGS)
    for name, ids in (("more", ("MAL-1", "MAL-2")), ("fewer", ("MAL-1",))):
        records = [osv_record(record_id) for record_id in ids]
        (home.folder / f"{name}.zip").write_bytes(osv_zip(records).getvalue())
    home.ask("blocklist", "import", str(home.folder / "more.zip"))
    home.ask("audit", "seal")
    segment_of(home).write_bytes(b"")  # only a damaged one is given up
    return home


def words_of(home: Home, command: tuple[str, ...]) -> list[str]:
    segment = segment_of(home).stem
    return [word.format(folder=home.folder, segment=segment) for word in ASKING[command]]


def settings_of(command: tuple[str, ...]) -> dict[str, str]:
    return {"segments_url": "s3://bucket/prefix"} if "take-over" in command else {}


def audit_rows(home: Home) -> list[tuple[object, ...]]:
    return execute(home.data_dir, "SELECT * FROM journal", [])


def test_every_command_that_takes_yes_is_tried_here():
    taking = {
        words
        for words, command in every_command().items()
        if isinstance(command, Command) and any(p.name == "is_sure" for p in command.params)
    }

    assert taking == set(ASKING)


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_without_a_terminal_nothing_is_changed_and_yes_is_named(ready, command):
    """A `y` that is piped in was written before the question."""
    before = audit_rows(ready)

    ran = ready.order(*words_of(ready, command), given=b"y\n", **settings_of(command))

    assert ran.code == 1
    assert ran.refusal.startswith("nothing was changed: ")
    assert ran.refusal.endswith("? Add --yes to confirm")
    assert audit_rows(ready) == before


@pytest.mark.parametrize("command", [("policy", "set"), ("blocklist", "import")], ids=" ".join)
def test_a_no_changes_nothing_and_a_yes_does(ready, command):
    before = audit_rows(ready)
    words = words_of(ready, command)
    with at_a_terminal(ready.environment(), *words) as terminal:
        shown = terminal.until("[y/N]")
        terminal.answer("n")
        refused = terminal.end()
    unchanged = audit_rows(ready)
    with at_a_terminal(ready.environment(), *words) as terminal:
        terminal.until("[y/N]")
        terminal.answer("yes")
        done = terminal.end()

    assert f"Target: data dir {ready.data_dir} (COUNTERSIGN_DATA_DIR)." in shown
    assert "left-pad" in shown or "1 of 2 advisories of npm" in shown
    assert (refused.code, unchanged) == (1, before)
    assert "not confirmed: nothing was changed" in refused.err
    assert done.code == 0
    assert audit_rows(ready) != before


def test_ctrl_c_at_a_question_ends_the_command_at_once(ready):
    """An event loop alone would wait for the answer."""
    before = audit_rows(ready)
    with at_a_terminal(ready.environment(), *words_of(ready, ("policy", "set"))) as terminal:
        terminal.until("[y/N]")
        terminal.process.send_signal(signal.SIGINT)
        ended = terminal.end()

    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert audit_rows(ready) == before


def test_a_policy_that_changed_meanwhile_is_not_replaced(ready):
    """The question was about another difference."""
    other = ready.folder / "other.toml"
    other.write_text('mode = "audit"\ncooldown = { min_age_days = 7 }\n')
    with at_a_terminal(ready.environment(), *words_of(ready, ("policy", "set"))) as terminal:
        terminal.until("[y/N]")
        ready.ask("policy", "set", str(other), "--org", "acme", "--yes")
        terminal.answer("y")
        ended = terminal.end()

    assert ended.code == 1
    assert "revision 1 by now" in ended.err
    assert ready.ask("policy", "show", "--org", "acme")["policy"]["mode"] == "audit"


def test_a_policy_without_a_rule_wants_to_be_meant(ready):
    """An empty file is most often the output of a command that failed."""
    (ready.folder / "policy.toml").write_text('mode = "audit"\n')
    words = (*words_of(ready, ("policy", "set")), "--yes")

    refused = ready.order(*words)
    meant = ready.ask(*words, "--empty")

    assert refused.code == 1
    assert refused.refusal == "policy.toml has no rule: add --empty to be left without any"
    assert meant["is_changed"]
