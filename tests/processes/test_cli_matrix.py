"""Every command of the tree by the same rules, at both places: one that is added is tried, too.

What each is called with is in `tests/goldens/command_cases.py`.
"""

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.access.callers import cli_caller
from service.app.composition import Services
from service.cli.client import PAGES_MAX, Client, org_path
from service.cli.commands import CommandPlace
from tests.budgets import IS_FULL, sample
from tests.conftest import ADMIN_TOKEN, ISSUER
from tests.databases import copy_data_dir
from tests.evidence.logs import SomeWitness
from tests.goldens.command_cases import NEVER_DONE, paths_in, words_of, write_files
from tests.goldens.commands import cases_of, leaves
from tests.goldens.world import MEMBERS
from tests.processes.command_line import Ran
from tests.processes.desks import Desk
from tests.processes.homes import Home, Server, owner_cookie
from tests.processes.strange_servers import Strange, strange_server
from tests.service.packages.attestations.rows import RUN, admit

pytestmark = pytest.mark.slow

DONE, REFUSED, WRONG_USAGE, UNAVAILABLE, CHANGES = 0, 1, 2, 3, 5
COMMANDS = leaves()
API = {
    name: each
    for name, each in COMMANDS.items()
    if each.place is CommandPlace.EITHER and name not in {"auth status", "mcp", "whoami"}
}
"""Those that ask a server for something; `whoami` tells every credential what it is, and
`mcp` asks once it is asked."""

ACME = ("--org", "acme")
MEMBER = MEMBERS["member"][1]
FOUND = {
    "audit verify-export": REFUSED,
    "bindings explain": REFUSED,
    "bindings sync": CHANGES,
    "blocklist check": REFUSED,
    "evidence verify": REFUSED,
    "explain": REFUSED,
    "stream test": REFUSED,
}
"""Commands that end with another code than 0 with their arguments."""

REFUSED_HERE = {
    **NEVER_DONE,
    "admin-token retire": "the tests' token is set by a variable",
    "admin-token rotate": "the tests' token is set by a variable",
    "audit restore-segment": "no segment is damaged",
}
"""Commands that are refused with their arguments, with the reason."""

ELSEWHERE = {
    "backup": "test_cli_backup.py: it makes a folder",
    "demo": "tests/service/cli/demo",
    "mcp": "test_cli_sql.py: it answers until its input ends",
    "serve": "it runs until it is stopped",
    "restore": "test_cli_backup.py: it replaces the data dir",
}
"""Commands of this machine that are tried elsewhere, with the place or the reason."""

OPERATOR = "only the operator of this service may do this: send the admin token"
NOT_ALLOWED = (
    "missing capability: ",
    OPERATOR,
    "an API key reads, and changes nothing",
    "API keys cannot do this",
    "you are not a member of this organisation",
    "does not accept this API key here",
)
FORM = "answers in a form that this program does not know"
SECRET = "cs_secret"
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u200b\r\n\tx"


def names_of(name: str) -> set[str | None]:
    return {parameter.name for parameter in COMMANDS[name].params}


@dataclass(frozen=True)
class Prepared:
    """A data dir with one of everything, and the values of names in arguments."""

    home: Home
    ids: Mapping[str, str]

    def words(self, name: str, folder: Path) -> tuple[str, ...]:
        """The command with arguments that should succeed; files are in `folder`."""
        files = folder / "files"
        if not files.exists():
            write_files(files)
        values = {**self.ids, **paths_in(files), "server": "https://audit.example"}
        return (*name.split(), *words_of(cases_of(name, COMMANDS[name])[0], values))


async def ask_for_an_exception(services: Services) -> str:
    """The id of a request without a decision yet."""
    asked = {"ecosystem": "npm", "package": "is-odd@3.0.1", "reason": "fixes a vulnerability"}
    async with Client.of_data_dir(services, cli_caller("org_platform")) as client:
        entry = await client.post(org_path("acme", "policy", "exceptions"), asked)
    return str(entry["id"])


async def fire_an_alert(services: Services) -> dict[str, str]:
    """The ids of an alert, and of its rule, which fires for its own creation."""
    rule = {"name": "Changes", "query": "event=alert_rule_changed"}
    async with Client.of_data_dir(services, cli_caller("org_platform")) as client:
        made = await client.post(org_path("acme", "alerts", "rules"), rule)
        await services.alerts.watch_due()
        (alert,) = (await client.get(org_path("acme", "alerts")))["alerts"]
    return {"alert_rule_id": made["id"], "alert_id": alert["id"]}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, acme: Path) -> Iterator[Prepared]:
    home = Home(tmp_path_factory.mktemp("prepared"))
    copy_data_dir(acme, home.data_dir)
    home.change(owner_cookie)
    home.ask("org", "add", "other")
    member = home.ask("member", "add", *ACME, MEMBER, "--idp", "github")
    home.ask("member", "add", *ACME, "priya.raman@acme.example", "--idp", "github")
    project = home.ask("project", "add", *ACME, "payments")
    team = home.ask("team", "add", *ACME, "platform")
    key = home.ask("apikey", "issue", *ACME, "--name", "ci", "--scope", "audit:ingest")
    machine = home.ask("machine", "issue", *ACME, "--name", "laptop", "--member", member["id"])
    session = home.ask("session", "issue", *ACME, "--member", "ada@acme.example", "--cookie")
    trust = ("--issuer", ISSUER, "--sub", "repo:acme/infra", "--repository-id", "355081734")
    binding = home.ask("bindings", "add", *ACME, *trust)
    receiver = ("--kind", "webhook", "--url", "https://127.0.0.1:1/rows")
    stream = home.ask("stream", "create", *ACME, "--name", "SIEM", *receiver)
    write_files(home.folder / "files")
    files = paths_in(home.folder / "files")
    home.order("blocklist", "import", files["feed"])
    home.ask("policy", "set", *ACME, files["policy"], "--yes")
    exported = home.ask("audit", "export", *ACME, "--format", "csv", files["out"])
    row = home.ask("audit", "list", *ACME, "--limit", "1")["entries"][0]
    home.ask("evidence", "sign")
    home.ask("evidence", "witness", "add", str(SomeWitness("witness.example/w1").key), "https://w1")
    home.change(admit)
    install = home.ask("audit", "list", *ACME, "--limit", "1")["entries"][0]
    ids = {
        "member_id": member["id"],
        "project_id": project["id"],
        "team_id": team["id"],
        "key_id": key["id"],
        "stream_id": stream["id"],
        "machine_token_id": machine["id"],
        "secret": key["secret"],
        "cookie": session["cookie"],
        "binding_id": binding["id"],
        "export_id": exported["export_id"],
        "audit_id": row["id"],
        "install_id": install["id"],
        "run_id": RUN,
        "exception_id": home.change(ask_for_an_exception),
        **home.change(fire_an_alert),
    }
    yield Prepared(home, ids)
    home.end()


@pytest.fixture
def homes(prepared: Prepared, tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """The same in two data dirs of the test's own."""
    both = Home(tmp_path / "scripts"), Home(tmp_path / "people")
    for home in both:
        home.folder.mkdir()
        copy_data_dir(prepared.home.data_dir, home.data_dir)
    yield both
    for home in both:
        home.end()


@pytest.fixture(scope="module")
def served(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a copy, which commands may change."""
    home = Home(tmp_path_factory.mktemp("served"))
    copy_data_dir(prepared.home.data_dir, home.data_dir)
    yield home.serve()
    home.end()


def here(name: str) -> bool:
    return COMMANDS[name].place is not CommandPlace.SERVER and name not in ELSEWHERE


def document(ran: Ran) -> dict[str, Any]:
    """The one object that a script got: an answer, or a failure on standard error."""
    said: dict[str, Any] = json.loads(ran.out) if ran.out else {"error": ran.refusal}
    assert isinstance(said, dict), ran
    return said


@pytest.mark.parametrize("name", [name for name in COMMANDS if here(name)])
def test_scripts_get_one_object_and_people_something_to_read(
    homes: tuple[Home, Home], prepared: Prepared, tmp_path: Path, name: str
) -> None:
    """A change says what it was made on, on standard error, to both."""
    command, (scripts, people) = COMMANDS[name], homes
    words = prepared.words(name, tmp_path)
    scripted = scripts.order(*words, "--json")
    (tmp_path / "files" / "out").unlink(missing_ok=True)
    read = people.order(*words)

    said = document(scripted)
    if name in REFUSED_HERE:
        assert (scripted.code, read.code, said["error"]) == (REFUSED, REFUSED, read.refusal)
        return
    assert scripted.code == read.code == FOUND.get(name, DONE), scripted
    assert ("error" in said) == (name == "audit verify-export"), said
    assert read.out.strip() or read.code
    if command.changes and command.place is not CommandPlace.LOCAL:
        named = {"target": f"data dir {scripts.data_dir}", "why": "COUNTERSIGN_DATA_DIR"}
        assert json.loads(scripted.err.splitlines()[-1]) == named
        where = f"data dir {people.data_dir} (COUNTERSIGN_DATA_DIR)"
        assert read.err.splitlines()[-1] == f"Target: {where}."


@pytest.mark.parametrize("name", sorted(API, key=lambda name: API[name].changes))
def test_a_server_answers_scripts_with_one_object(
    prepared: Prepared, served: Server, desk: Desk, tmp_path: Path, name: str
) -> None:
    """With the admin token; what earlier commands have changed may be refused."""
    at = {"COUNTERSIGN_SERVER": served.url, "COUNTERSIGN_TOKEN": ADMIN_TOKEN}

    ran = desk.order(*prepared.words(name, tmp_path), "--json", **at)

    said = document(ran)
    assert ran.code in {DONE, REFUSED, CHANGES}
    if not API[name].changes and name != "policy exceptions show":
        assert "error" not in said, said


@sample(40)
@pytest.mark.parametrize("name", API)
def test_what_a_credential_may_not_do_is_refused_in_one_line(
    prepared: Prepared, served: Server, desk: Desk, tmp_path: Path, name: str
) -> None:
    """A key that sends rows reads nothing and changes nothing."""
    words = prepared.words(name, tmp_path)
    at = {"COUNTERSIGN_SERVER": served.url, "COUNTERSIGN_TOKEN": prepared.ids["secret"]}

    ran = desk.order(*words, **at)
    scripted = desk.order(*words, "--json", **at)

    assert (ran.code, scripted.code) == (REFUSED, REFUSED)
    assert any(text in ran.refusal for text in NOT_ALLOWED), ran
    assert scripted.refusal == ran.refusal


@sample(30)
@pytest.mark.parametrize("name", [name for name in API if "slug" in names_of(name)])
def test_an_organisation_that_is_none_or_anothers_is_not_found(
    prepared: Prepared, served: Server, desk: Desk, tmp_path: Path, name: str
) -> None:
    """Another one's is refused, too, without a word of what it has."""
    words = prepared.words(name, tmp_path)
    at = {"COUNTERSIGN_SERVER": served.url, "COUNTERSIGN_TOKEN": prepared.ids["cookie"]}

    for slug, refusals in (("no-such-org", ("Org not found", OPERATOR)), ("other", NOT_ALLOWED)):
        named = tuple(slug if word == "acme" else word for word in words)
        ran = desk.order(*named, **at)
        assert ran.code == REFUSED
        assert any(text in ran.refusal for text in refusals), ran


@pytest.mark.parametrize("name", API)
def test_a_server_that_is_gone_is_named_and_can_be_tried_again(
    prepared: Prepared, desk: Desk, tmp_path: Path, name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    at = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": SECRET}

    ran = desk.order(*prepared.words(name, tmp_path), "--json", **at)

    assert ran.code == UNAVAILABLE
    assert ran.refusal.startswith(f"cannot reach {url}")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in {"ci exec", "run"}])
def test_an_option_that_there_is_not_is_a_wrong_usage(desk: Desk, name: str) -> None:
    words = name.split()
    read = desk.order(*words, "--no-such-option")
    scripted = desk.order(*words, "--json", "--no-such-option")

    assert (read.code, scripted.code) == (WRONG_USAGE, WRONG_USAGE)
    assert (read.out, scripted.out) == ("", "")
    assert "Usage: " in read.err
    assert list(json.loads(scripted.err)) == ["error"]


def answers(body: object, at: Strange) -> None:
    """Answer everything with `body`, as Countersign would."""
    content = json.dumps(body).encode()
    at.reply(200, content, x_request_id="req_1", content_type="application/json")


LISTS = (
    *("entries", "exports", "bindings", "rejected", "rules", "nearest", "members", "teams"),
    *("projects", "api_keys", "organisations", "domains", "sessions", "artifacts", "feeds"),
    *("machine_tokens", "imports", "actions", "findings", "plan", "roles", "notes"),
    *("exceptions", "changes", "installs"),
)
HOSTILE = {
    "missing": {"id": [], "org": 5, "last": None},
    "numbers": dict.fromkeys(LISTS, 1) | {"next_cursor": None},
    "empty entries": {name: [{}] for name in LISTS} | {"next_cursor": None},
    "nulls": dict.fromkeys((*LISTS, "policy", "actor", "ecosystems"), None),
    "shapes": {name: {"a": EVIL} for name in LISTS} | {"next_cursor": None, "actor": EVIL},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_answer_of_another_form_is_one_line_and_no_traceback(
    prepared: Prepared, desk: Desk, tmp_path: Path, kind: str
) -> None:
    """`order` would raise it. A login may lead to another version, or to what took its place.

    In `make test` each command gets one of the bodies.
    """
    first = list(HOSTILE).index(kind)
    tried = list(API) if IS_FULL else list(API)[first :: len(HOSTILE)]
    with strange_server(partial(answers, HOSTILE[kind])) as (url, _):
        at = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": SECRET}
        for name in tried:
            words = prepared.words(name, tmp_path)
            ran = desk.order(*words, given="a.b.c", **at)
            assert SECRET not in ran.out + ran.err, name
            assert all(c.isprintable() or c == "\n" for c in ran.out + ran.err), name
            if ran.code == REFUSED and ran.out == "":
                assert FORM in ran.err, (name, ran)


def test_an_endless_list_is_not_read_to_its_end(desk: Desk) -> None:
    """Each page names a next one."""
    page = {"projects": [{"id": "proj_1", "name": "x"}], "next_cursor": "again"}
    with strange_server(partial(answers, page)) as (url, seen):
        at = {"COUNTERSIGN_SERVER": url, "COUNTERSIGN_TOKEN": SECRET}
        ran = desk.order("project", "list", *ACME, **at)

    assert (ran.code, len(seen)) == (REFUSED, PAGES_MAX)
    assert ran.refusal == f"{url} answers with more than {PAGES_MAX} pages of projects"
