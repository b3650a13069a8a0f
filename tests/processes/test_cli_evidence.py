"""`countersign evidence verify`: what an auditor with files and a key, and no service, is told."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from tests.evidence.logs import Log, SomeWitness
from tests.processes.command_line import Ran, invoke
from tests.processes.homes import Home

LOG = Log(300)
OTHER = Log(300, tenant_id="org_other")
WITNESS = SomeWitness("w1.example/a")
EXPORTED = b"id,event\naud_1,blocklist_hit\n"
VERIFY = ("evidence", "verify")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Home:
    """A machine without a data dir."""
    return Home(tmp_path)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "rows.zip"
    path.write_bytes(LOG.bundle(range(10, 20)))
    return path


@pytest.fixture
def receipt(tmp_path: Path) -> Path:
    (tmp_path / "acme.csv").write_bytes(EXPORTED)
    path = tmp_path / "acme.csv.receipt.json"
    path.write_bytes(LOG.receipt(EXPORTED))
    return path


def verify(home: Home, *words: object) -> Ran:
    return invoke([*VERIFY, *map(str, words)], home.environment())


def test_a_bundle_is_verified_without_a_data_dir(elsewhere: Home, bundle: Path) -> None:
    ran = verify(elsewhere, bundle, "--key", LOG.key)
    assert ran.code == 0
    assert not elsewhere.data_dir.exists()
    assert ran.out.splitlines()[:4] == [
        f"{bundle} is verified.",
        "Proved:",
        f"  10 rows (index 10 to 19) are, byte for byte, in the log {LOG.origin} of 300 rows, as"
        f" its checkpoint says, which {LOG.key.label} signed",
        "  no row is left out between these indexes",
    ]
    assert "Not proved:\n  that the operator signed no other history" in ran.out


def test_a_key_that_is_the_bundles_own_is_told(elsewhere: Home, bundle: Path) -> None:
    ran = verify(elsewhere, bundle)
    assert ran.code == 0
    assert f"that the key is the operator's: {LOG.key} is the bundle's own" in ran.out


def test_what_is_wrong_is_told_to_scripts_and_people(elsewhere: Home, bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as files:
        contents = {name: files.read(name) for name in files.namelist()}
    contents["rows.ndjson"] = contents["rows.ndjson"].replace(b"blocklist_hit", b"x", 1)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as changed:
        for name, content in contents.items():
            changed.writestr(name, content)
    bundle.write_bytes(target.getvalue())

    ran = verify(elsewhere, bundle, "--key", LOG.key)
    scripted = verify(elsewhere, bundle, "--key", LOG.key, "--json")

    assert (ran.code, scripted.code) == (1, 1)
    assert ran.out.splitlines()[:2] == [f"{bundle} is NOT as it was signed.", "Wrong:"]
    said = json.loads(scripted.out)
    assert said["is_verified"] is False
    assert said["proved"] == []
    (finding,) = said["findings"]
    assert finding.startswith(f"row {LOG.id(10)} (index 10) or its proof is changed")
    assert f"  {finding}" in ran.out.splitlines()


def test_keys_may_be_in_a_file(elsewhere: Home, bundle: Path, tmp_path: Path) -> None:
    keys = tmp_path / "log.vkey"
    keys.write_text(f"{Log(1, seed='before').key}\n\n{LOG.key}\n")
    assert verify(elsewhere, bundle, "--key", keys).code == 0
    assert verify(elsewhere, bundle, "--key", OTHER.key, "--key", LOG.key).code == 0
    ran = verify(elsewhere, bundle, "--key", OTHER.key)
    assert ran.code == 1
    assert f"of the log {LOG.origin}; trusted are: {OTHER.key.label}" in ran.out


def test_a_policy_decides_which_witnesses_are_needed(
    elsewhere: Home, bundle: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.txt"
    policy.write_text(f"log {LOG.key}\nwitness W {WITNESS.key}\nquorum W\n")
    ran = verify(elsewhere, bundle, "--policy", policy)
    assert ran.code == 1
    assert "checkpoint.txt: cosigned by no known witness, which is not the quorum W" in ran.out

    cosigned = WITNESS.cosign(LOG.checkpoint())
    bundle.write_bytes(LOG.bundle(range(3), checkpoint=cosigned))
    ran = verify(elsewhere, bundle, "--policy", policy)
    assert ran.code == 0
    assert f"{WITNESS.key.label} cosigned the checkpoint at 2026-11-18T11:06:40Z" in ran.out


def test_a_signed_receipt_is_verified_with_the_file_beside_it(
    elsewhere: Home, receipt: Path
) -> None:
    ran = verify(elsewhere, receipt, "--key", LOG.key)
    assert ran.code == 0
    assert "  the export exp_1 of org_acme has 2 rows in " in ran.out
    assert f"had at least 300 rows when it ended, as {LOG.origin} signed" in ran.out
    assert "  acme.csv is the file of this export" in ran.out


def test_the_file_may_have_the_name_that_the_receipt_says(elsewhere: Home, receipt: Path) -> None:
    renamed = receipt.rename(receipt.with_name("receipt.json"))
    assert verify(elsewhere, renamed, "--key", LOG.key).code == 0


def test_another_file_than_the_exported_one_is_named(elsewhere: Home, receipt: Path) -> None:
    receipt.with_name("acme.csv").write_bytes(EXPORTED + b"x")
    ran = verify(elsewhere, receipt, "--key", LOG.key)
    assert ran.code == 1
    assert "  acme.csv: not the file of export exp_1: its SHA-256 differs" in ran.out
    receipt.with_name("acme.csv").unlink()
    assert "acme.csv" in verify(elsewhere, receipt, "--key", LOG.key).refusal


def test_a_receipt_of_another_key_is_named(elsewhere: Home, receipt: Path) -> None:
    ran = verify(elsewhere, receipt, "--key", Log(1, seed="another key").key)
    assert ran.code == 1
    assert "acme.csv.receipt.json: signed by audit.example/org_acme+" in ran.out


def test_a_receipt_leads_to_no_file_elsewhere(elsewhere: Home, receipt: Path) -> None:
    receipt.with_name("r.json").write_bytes(LOG.receipt(EXPORTED, file_name="../acme.csv"))
    ran = verify(elsewhere, receipt.with_name("r.json"), "--key", LOG.key)
    assert ran.code == 1
    assert "Invalid name '../acme.csv'" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("no-such.zip",), 1, "no-such.zip"),
        (("{receipt}",), 2, "a receipt brings no key: give --key or --policy"),
        (("{receipt}", "--key", "nonsense"), 1, "--key: line 1: a key must have the form"),
        (("{receipt}", "--key", str(WITNESS.key)), 1, "--key: line 1: a log has a key of type 1"),
        (("{receipt}", "--policy", "{receipt}"), 1, "acme.csv.receipt.json: line 1: not a log"),
        (("{receipt}", "--key", "x", "--policy", "y"), 2, "--key and --policy exclude each other"),
    ],
)
def test_what_cannot_be_verified_says_why(
    elsewhere: Home, receipt: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = verify(elsewhere, *(word.format(receipt=receipt) for word in words))
    assert ran.code == code
    assert said in ran.err


@pytest.mark.parametrize("key", ["", "log.vkey"])
def test_an_empty_key_does_not_mean_those_of_the_bundle(
    elsewhere: Home, bundle: Path, key: str
) -> None:
    """A variable that is not set, or a file that nothing was written to."""
    (elsewhere.folder / "log.vkey").write_text("\n")
    ran = verify(elsewhere, bundle, "--key", key and elsewhere.folder / key)
    assert ran.code == 2
    assert "--key is empty: give a key, or a file with keys" in ran.err


def test_what_is_neither_is_a_finding(elsewhere: Home, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(EXPORTED)
    ran = verify(elsewhere, tmp_path / "x.csv")
    assert ran.code == 1
    assert "the bundle: File is not a zip file" in ran.out


@pytest.fixture(scope="module")
def signed(quiet_home: Home) -> Home:
    """A data dir with rows, which are signed."""
    for name in ("a", "b", "c"):
        quiet_home.ask("team", "add", "--org", "acme", name)
    quiet_home.ask("evidence", "sign")
    return quiet_home


def test_what_is_exported_is_verified_elsewhere(signed: Home, elsewhere: Home) -> None:
    """From the operator's machine to the auditor's, by files alone."""
    keys = elsewhere.folder / "log.vkey"
    checkpoint = signed.ask("evidence", "checkpoint", "--org", "acme")
    keys.write_text("\n".join(checkpoint["keys"]))
    bundle = elsewhere.folder / "all.zip"
    signed.ask("evidence", "export", "--org", "acme", "-o", str(bundle))
    exported = elsewhere.folder / "acme.csv"
    export = ("audit", "export", "--org", "acme", "--format", "csv", str(exported))
    export_id = signed.ask(*export)["export_id"]
    receipt = Path(f"{exported}.receipt.json")
    receipt.write_text(signed.order("audit", "exports", "receipt", "--org", "acme", export_id).out)

    rows = verify(elsewhere, bundle, "--key", keys)
    file = verify(elsewhere, receipt, "--key", keys)

    assert (rows.code, file.code) == (0, 0), (rows.out, file.out)
    assert f"  {checkpoint['size']:,} rows (index 0 to " in rows.out
    assert "no row is left out between these indexes" in rows.out
    assert f"  the export {export_id} of " in file.out
    exported.write_bytes(exported.read_bytes().replace(b"team_created", b"team_deleted"))
    assert verify(elsewhere, receipt, "--key", keys).code == 1


def test_what_is_exported_begins_with_a_checkpoint_that_was_kept(
    signed: Home, elsewhere: Home
) -> None:
    """The auditor had it from an earlier audit: nothing of before was changed or removed."""
    kept = elsewhere.folder / "kept.txt"
    kept.write_text(signed.order("evidence", "checkpoint", "--org", "acme").out)
    size = signed.ask("evidence", "checkpoint", "--org", "acme")["size"]
    signed.ask("team", "add", "--org", "acme", "later")
    signed.ask("evidence", "sign")
    bundle = elsewhere.folder / "later.zip"
    export = ("evidence", "export", "--org", "acme", "-o", str(bundle), "--older", str(kept))
    signed.ask(*export)

    ran = verify(elsewhere, bundle)

    assert ran.code == 0
    assert f"  the log of {size:,} rows of an older checkpoint begins it" in ran.out
    kept.write_text(str(OTHER.checkpoint()))
    assert "is of another log: audit.example/org_other" in signed.order(*export, "--force").refusal
    kept.write_text("x")
    assert "kept.txt is not a checkpoint" in signed.order(*export, "--force").refusal
