"""`countersign attest`: what people read, and what a bundle is verified by."""

import json
import re
from functools import partial

import pytest

from analytics.model.envelopes import InstallWouldBlock
from service.store.journal import append
from service.store.organisations import get_org
from tests.conftest import ADMIN_TOKEN
from tests.goldens.command_cases import paths_in, write_files
from tests.service.packages.attestations.rows import RUN, admit, admitted_row

pytestmark = pytest.mark.slow

ACME = ("--org", "acme")
REFUSED = 1


async def let_through(services):
    """Add a row of the run whose install only audit mode allowed."""
    async with services.store.write() as work:
        org = await get_org(work.session, "acme")
        envelope = InstallWouldBlock(blocked_by="blocklist_hit", rule_id="MAL-1")
        row = admitted_row(work.now, "evil", envelope=envelope)
        await append(work.session, org.id, [row], now=work.now)


@pytest.fixture
def bundle(home):
    """A bundle of a run with one admitted package, `left-pad`, and the keys beside it."""
    home.change(partial(admit, content=b"the tarball"))
    path, keys = home.folder / "run.intoto.jsonl", home.folder / "keys.txt"
    home.order("attest", "bundle", *ACME, "--run", RUN, "-o", str(path))
    home.ask("evidence", "sign")
    policy = home.order("evidence", "policy", *ACME).out
    keys.write_text("".join(re.findall(r"^log (.*\n)", policy, re.MULTILINE)))
    return path, keys


def test_a_run_is_listed_with_what_has_no_statement(home):
    home.change(admit)
    home.change(let_through)
    listed = home.order("attest", "list", *ACME, "--run", RUN).out
    written = home.order("attest", "bundle", *ACME, "--run", RUN, "-o", str(home.folder / "x"))

    assert "left-pad" in listed
    assert "evil" in listed
    assert written.out.startswith("Wrote 1 statements")
    assert "evil: the row has no statement: the policy was against the install" in written.out
    assert len((home.folder / "x").read_text().splitlines()) == 1


def test_a_statement_is_shown_as_it_says_and_as_it_is_signed(home):
    home.change(admit)
    row = home.ask("audit", "list", *ACME, "--limit", "1")["entries"][0]
    shown = home.order("attest", "show", *ACME, row["id"]).out
    signed = home.ask("attest", "show", *ACME, row["id"])

    assert json.loads(shown)["subject"][0]["uri"] == "pkg:npm/left-pad@1.3.0"
    assert signed["payloadType"] == "application/vnd.in-toto+json"


def test_a_bundle_comes_from_a_server_too(home, bundle):
    _, keys = bundle
    at = {"server": home.serve().url, "token": ADMIN_TOKEN}
    other = home.folder / "other"
    ran = home.order("attest", "bundle", *ACME, "--run", RUN, "-o", str(other), **at)
    assert ran.code == 0, ran.err
    assert home.run("attest", "verify", str(other), "--key", str(keys)).code == 0


def test_a_run_without_installs_is_refused(home):
    ran = home.run("attest", "bundle", *ACME, "--run", "0", "-o", str(home.folder / "x"))
    assert ran.refusal == "no install of run 0 was allowed"
    assert not (home.folder / "x").exists()


def test_a_bundle_and_its_files_are_verified(home, bundle):
    path, keys = bundle
    tarball, another = home.folder / "left-pad.tgz", home.folder / "other.tgz"
    tarball.write_bytes(b"the tarball")
    another.write_bytes(b"another one")

    good = home.order("attest", "verify", str(path), str(tarball), "--key", str(keys))
    assert good.out.splitlines() == [
        "1 statements are signed by the keys.",
        f"{tarball}: pkg:npm/left-pad@1.3.0",
    ]
    bad = home.run("attest", "verify", str(path), str(another), "--key", str(keys))
    assert (bad.code, bad.out) == (REFUSED, f"{another}: no statement is about it\n")


def test_what_is_not_as_it_was_signed_is_named_by_its_line(home, bundle):
    path, keys = bundle
    good = path.read_text()
    changed = json.loads(good)
    changed["payload"] = changed["payload"].replace("eyJ", "eyK", 1)
    path.write_text(f"{good}{json.dumps(changed)}\n{{}}\n")
    ran = home.run("attest", "verify", str(path), "--key", str(keys))

    first, second = ran.out.splitlines()
    assert (ran.code, first) == (REFUSED, "line 2: none of the keys signed it as it is")
    assert second.startswith("line 3: not a DSSE envelope")

    path.write_text("")
    assert home.run("attest", "verify", str(path), "--key", str(keys)).code == REFUSED


def test_another_key_is_not_the_one(home, bundle):
    path, _ = bundle
    files = home.folder / "files"
    write_files(files)
    key = paths_in(files)["key"]

    ran = home.run("attest", "verify", str(path), "--key", key)
    assert ran.out == "line 1: none of the keys signed it as it is\n"
    assert "--key: " in home.run("attest", "verify", str(path), "--key", str(path)).refusal
